# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The meaning of a runtime's labels."""

from __future__ import annotations

from collections.abc import Mapping

from pkg.constants import trainer as constants


def is_support_deprecated(labels: Mapping[str, str] | None) -> bool:
    """Return True if the labels mark a runtime as deprecated."""
    return labels is not None and labels.get(constants.LABEL_SUPPORT) == constants.SUPPORT_DEPRECATED
