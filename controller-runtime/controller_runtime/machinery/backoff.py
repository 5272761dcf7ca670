# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Delays between attempts that grow with each failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RandomFunc = Callable[[], float]
"""Returns a number in [0, 1)."""
_RESET_AFTER: Final = 120.0


def exponential(failures: int, first: float, longest: float) -> float:
    """Return ``first``, doubled for each of the former ``failures``, but at most ``longest``."""
    # Beyond 2**1000 a float overflows; every sensible maximum is reached long before.
    return min(first * 2.0 ** min(failures, 1000), longest)


class Backoff:
    """Delays that double from ``first`` to ``longest``, each lengthened by up to ``jitter`` of itself.

    After :data:`_RESET_AFTER` seconds without a failure, the delays start over.
    """

    def __init__(
        self,
        *,
        first: float = 0.8,
        longest: float = 30.0,
        jitter: float = 1.0,
        random: RandomFunc,
    ) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._random = random
        self._failures = 0
        self._until = float("-inf")

    def reset(self) -> None:
        """Use the first delay again after the next failure."""
        self._failures = 0

    def next(self, now: float) -> float:
        """Return the seconds to wait after a failure at ``now``."""
        if now - self._until > _RESET_AFTER:
            self._failures = 0
        delay = exponential(self._failures, self._first, self._longest) * (1 + self._jitter * self._random())
        self._failures += 1
        self._until = now + delay
        return delay
