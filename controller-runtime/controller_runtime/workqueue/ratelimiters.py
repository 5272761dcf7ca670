# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How long work waits before it is tried again. All times are seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Self, TypeVar

from controller_runtime.machinery.backoff import exponential
from controller_runtime.machinery.tokenbucket import TokenBucket

T = TypeVar("T", bound=Hashable)

BASE_DELAY: Final = 0.005
MAX_DELAY: Final = 1000.0
OVERALL_QPS: Final = 10.0
OVERALL_BURST: Final = 100


class RateLimiter(ABC, Generic[T]):
    """Decides on delays, for each item or for all items together."""

    @abstractmethod
    def when(self, item: T) -> float:
        """Return how long ``item`` waits this time; each call counts as one more failure."""

    @abstractmethod
    def forget(self, item: T) -> None:
        """Forget the failures of ``item``, because it succeeded or was given up."""

    @abstractmethod
    def num_requeues(self, item: T) -> int:
        """Return how often ``item`` has failed since it was last forgotten."""


class _PerItem(RateLimiter[T]):
    """Counts the failures of each item."""

    def __init__(self) -> None:
        self._failures: dict[T, int] = {}

    def forget(self, item: T) -> None:
        """Forget the failures of ``item``."""
        self._failures.pop(item, None)

    def num_requeues(self, item: T) -> int:
        """Return the failures counted."""
        return self._failures.get(item, 0)


class ItemExponentialFailureRateLimiter(_PerItem[T]):
    """Delays an item by ``base`` after its first failure, twice as long after each further one, up to ``maximum``."""

    def __init__(self, base: float = BASE_DELAY, maximum: float = MAX_DELAY) -> None:
        super().__init__()
        self._base = base
        self._maximum = maximum

    def when(self, item: T) -> float:
        """Return the next delay of ``item``."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        return exponential(failures, self._base, self._maximum)


class ItemFastSlowRateLimiter(_PerItem[T]):
    """Delays an item by ``fast`` after each of its first ``attempts`` failures, then by ``slow``."""

    def __init__(self, fast: float, slow: float, attempts: int) -> None:
        super().__init__()
        self._fast = fast
        self._slow = slow
        self._attempts = attempts

    def when(self, item: T) -> float:
        """Return the next delay of ``item``."""
        failures = self._failures[item] = self._failures.get(item, 0) + 1
        return self._fast if failures <= self._attempts else self._slow


class BucketRateLimiter(RateLimiter[T]):
    """A token bucket that all items share: ``burst`` items at once, then ``qps`` a second. It counts no failures."""

    def __init__(self, qps: float, burst: int, *, clock: Callable[[], float] | None = None) -> None:
        self._bucket = TokenBucket(qps, burst, clock)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this limiter: the items of its copies share the bucket, too."""
        del memo
        return self

    def when(self, item: T) -> float:
        """Take a token, or a future token if none is left, and return the time until that token is available."""
        del item
        return self._bucket.take()

    def forget(self, item: T) -> None:
        """Do nothing: a token is not returned."""

    def num_requeues(self, item: T) -> int:
        """Return 0."""
        del item
        return 0


class MaxOfRateLimiter(RateLimiter[T]):
    """Uses the longest delay of several limiters."""

    def __init__(self, *limiters: RateLimiter[T]) -> None:
        self._limiters = limiters

    def when(self, item: T) -> float:
        """Return the longest delay; every limiter counts the failure."""
        return max((limiter.when(item) for limiter in self._limiters), default=0.0)

    def forget(self, item: T) -> None:
        """Make every limiter forget."""
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return the highest count."""
        return max((limiter.num_requeues(item) for limiter in self._limiters), default=0)


class WithMaxWaitRateLimiter(RateLimiter[T]):
    """Limits the delays of another limiter to ``maximum``."""

    def __init__(self, limiter: RateLimiter[T], maximum: float) -> None:
        self._limiter = limiter
        self._maximum = maximum

    def when(self, item: T) -> float:
        """Return the delay of the wrapped limiter, at most the maximum."""
        return min(self._limiter.when(item), self._maximum)

    def forget(self, item: T) -> None:
        """Forget the item in the wrapped limiter."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """Return the count of the wrapped limiter."""
        return self._limiter.num_requeues(item)


def default_controller_rate_limiter() -> RateLimiter[T]:
    """Return a controller's limiter: 5 ms to 1000 s for each item, and 10 retries a second for all items after a burst
    of 100.
    """
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(BASE_DELAY, MAX_DELAY),
        BucketRateLimiter(OVERALL_QPS, OVERALL_BURST),
    )
