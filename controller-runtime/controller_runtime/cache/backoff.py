# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next try."""

from __future__ import annotations

from collections.abc import Callable

RandomFunc = Callable[[], float]
"""Returns a number in [0, 1)."""


class Backoff:
    """Delays that grow by ``factor`` from ``first`` to ``longest``, each lengthened by up to ``jitter`` of itself.

    After ``reset_after`` seconds without a failure they start over.
    """

    def __init__(
        self,
        *,
        first: float = 0.8,
        longest: float = 30.0,
        factor: float = 2.0,
        jitter: float = 1.0,
        reset_after: float = 120.0,
        random: RandomFunc,
    ) -> None:
        self._first = first
        self._longest = longest
        self._factor = factor
        self._jitter = jitter
        self._reset_after = reset_after
        self._random = random
        self._next = first
        self._until = float("-inf")

    def reset(self) -> None:
        """Start over with the next failure."""
        self._next = self._first

    def next(self, now: float) -> float:
        """Return the seconds to wait after a failure at ``now``."""
        if now - self._until > self._reset_after:
            self._next = self._first
        delay = self._next * (1 + self._jitter * self._random())
        self._next = min(self._next * self._factor, self._longest)
        self._until = now + delay
        return delay
