# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A token bucket that does not wait: it returns the time that the caller has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TokenBucket:
    """A bucket of at most ``burst`` tokens that gains ``rate`` tokens per second.

    It starts full, and may owe tokens. The time is read from ``clock``, by default from the running event loop.
    """

    __slots__ = ("_at", "_burst", "_clock", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] | None = None) -> None:
        self._rate = rate
        self._burst = self._tokens = float(burst)
        self._clock = clock
        self._at: float | None = None

    def tokens(self) -> float:
        """Return the number of tokens left; it is negative while the bucket owes tokens."""
        now = (self._clock or asyncio.get_running_loop().time)()
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._tokens

    def take(self, tokens: float = 1) -> float:
        """Take tokens, even if the bucket then owes some; return the seconds until it owes none."""
        self._tokens = self.tokens() - tokens
        return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Take a token if at least one is left; return True if one was taken."""
        if self.tokens() < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Put back a token that was taken and not used."""
        self._tokens += 1
