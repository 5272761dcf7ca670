# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""ExpectedError: the base of errors whose text is enough for the user."""

from __future__ import annotations

from typing import ClassVar


class ExpectedError(Exception):
    """An error that is logged without a stack trace, which would show nothing but this program's own code."""

    needs_no_stack: ClassVar[bool] = True
