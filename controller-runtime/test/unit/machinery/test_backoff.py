# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Back-off and token buckets."""

import pytest

from controller_runtime.machinery.backoff import Backoff, exponential
from controller_runtime.machinery.tokenbucket import TokenBucket


def test_delays_grow_up_to_the_longest_however_many_failures_there_were() -> None:
    assert [exponential(failures, 0.5, 30) for failures in (0, 1, 2, 6, 10**6)] == [0.5, 1, 2, 30, 30]


def test_each_delay_is_lengthened_by_at_most_the_jitter() -> None:
    backoff = Backoff(first=1, longest=4, jitter=0.5, random=lambda: 0.5)
    assert [backoff.next(0) for _ in range(4)] == [1.25, 2.5, 5, 5]
    backoff.reset()
    assert backoff.next(0) == 1.25


def test_delays_double_and_start_over_two_minutes_after_the_last_delay() -> None:
    backoff = Backoff(first=1, longest=30, jitter=0, random=lambda: 0.0)
    assert [backoff.next(0), backoff.next(1), backoff.next(3)] == [1, 2, 4]
    assert backoff.next(3 + 4 + 119) == 8
    assert backoff.next(3 + 4 + 119 + 8 + 121) == 1


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_try_take_promises_nothing(clock: Clock) -> None:
    bucket = TokenBucket(1, 1, clock)
    assert [bucket.try_take() for _ in range(3)] == [True, False, False]
    clock.now += 1
    assert bucket.try_take()


def test_a_clock_that_goes_back_takes_no_tokens(clock: Clock) -> None:
    bucket = TokenBucket(1, 2, clock)
    bucket.take()
    clock.now -= 50
    assert bucket.tokens() == 1


def test_a_debt_is_paid_before_the_next_token(clock: Clock) -> None:
    bucket = TokenBucket(0.1, 1, clock)
    bucket.take(3.0)
    assert (bucket.tokens(), bucket.take(0)) == (-2, 20)
    bucket.give_back()
    assert bucket.tokens() == -1
