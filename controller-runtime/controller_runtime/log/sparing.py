# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lines that a client can cause: so many a second, however many it causes."""

from __future__ import annotations

import time
from collections.abc import Callable


class Sparing:
    """A token bucket for lines; it counts those that it held back."""

    def __init__(
        self, *, burst: int = 20, per_second: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = self._tokens = float(burst)
        self._per_second = per_second
        self._clock = clock
        self._filled = clock()
        self._held_back = 0

    def allow(self) -> dict[str, int] | None:
        """Return None when the line must not be written, else fields for it: how many were held back before."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        if self._tokens < 1:
            self._held_back += 1
            return None
        self._tokens -= 1
        held_back, self._held_back = self._held_back, 0
        return {"heldBack": held_back} if held_back else {}
