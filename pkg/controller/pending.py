# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PendingError: an object cannot be written yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

SOON: Final = timedelta(seconds=1)
UNTIL_DELETED: Final = timedelta(seconds=10)


class PendingError(Exception):
    """A child cannot be written yet. Retry when a watch reports a change, or ``after`` this time at the latest."""

    def __init__(self, reason: str, after: timedelta = SOON) -> None:
        super().__init__(reason)
        self.after = after
