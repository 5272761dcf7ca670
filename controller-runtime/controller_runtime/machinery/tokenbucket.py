# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A token bucket. It does not wait, but returns the time that the caller has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TokenBucket:
    """``burst`` tokens, refilled at ``rate`` a second; it begins full, and may owe tokens.

    The time is that of ``clock``, by default of the event loop that runs.
    """

    __slots__ = ("_at", "_burst", "_clock", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] | None = None) -> None:
        self._rate = rate
        self._burst = self._tokens = float(burst)
        self._clock = clock
        self._at: float | None = None

    def tokens(self) -> float:
        """Return the tokens left, less than zero when some are owed."""
        now = (self._clock or asyncio.get_running_loop().time)()
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._tokens

    def take(self, tokens: float = 1) -> float:
        """Take tokens, future ones if need be; return the seconds until they are there."""
        self._tokens = self.tokens() - tokens
        return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Take a token if there is one; return True if there was."""
        if self.tokens() < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._tokens += 1
