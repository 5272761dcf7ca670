# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A limit on the log lines that clients can cause."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller_runtime.tokenbucket import TokenBucket


class Sparing:
    """A token bucket for log lines; it counts the dropped ones."""

    def __init__(
        self, *, burst: int = 20, per_second: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bucket = TokenBucket(per_second, burst, clock)
        self._held_back = 0

    def allow(self) -> dict[str, int] | None:
        """Return None if the line must be dropped, else extra fields for it: the number of lines dropped before."""
        if not self._bucket.try_take():
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        return {"heldBack": held_back} if held_back else {}
