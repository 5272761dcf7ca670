# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Token buckets, on the test's own clock."""

import pytest

from controller_runtime.machinery.tokenbucket import TokenBucket


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
