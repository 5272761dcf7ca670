# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy

import anyio
import pytest

from controller_runtime.workqueue import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    ItemFastSlowRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    WithMaxWaitRateLimiter,
    default_controller_rate_limiter,
)


def test_delays_of_an_item_double_up_to_the_maximum_and_start_again_when_forgotten() -> None:
    limiter = ItemExponentialFailureRateLimiter[str](0.001, 1.0)
    assert [limiter.when("a") for _ in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert [limiter.when("b") for _ in range(2)] == [0.001, 0.002]
    assert (limiter.num_requeues("a"), limiter.num_requeues("b"), limiter.num_requeues("c")) == (5, 2, 0)
    limiter.forget("a")
    limiter.forget("never seen")
    assert (limiter.num_requeues("a"), limiter.when("a")) == (0, 0.001)
    assert [limiter.when("b") for _ in range(3000)][-1] == 1.0


def test_a_controller_waits_5_ms_first_and_1000_s_at_most() -> None:
    limiter = ItemExponentialFailureRateLimiter[str]()
    delays = [limiter.when("a") for _ in range(20)]
    assert delays[0] == 0.005
    assert delays[17] == pytest.approx(655.36)
    assert delays[18:] == [1000.0, 1000.0]


def test_an_item_is_tried_fast_a_few_times_and_slowly_from_then_on() -> None:
    limiter = ItemFastSlowRateLimiter[str](0.005, 10.0, 3)
    assert [limiter.when("a") for _ in range(5)] == [0.005, 0.005, 0.005, 10.0, 10.0]
    limiter.forget("a")
    assert limiter.when("a") == 0.005


def test_a_bucket_lets_the_burst_pass_then_makes_each_wait_longer_and_fills_with_time() -> None:
    now = 50.0
    limiter = BucketRateLimiter[str](10, 3, clock=lambda: now)
    assert [limiter.when(str(n)) for n in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    now += 0.25
    assert limiter.when("a") == pytest.approx(0.05)
    now += 1000
    assert [limiter.when("a") for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])
    assert limiter.num_requeues("a") == 0


def test_the_longest_delay_of_several_limiters_counts() -> None:
    limiter = MaxOfRateLimiter(
        ItemFastSlowRateLimiter[str](5, 10, 1), ItemExponentialFailureRateLimiter(4, 100)
    )
    assert [limiter.when("a") for _ in range(3)] == [5, 10, 16]
    assert limiter.num_requeues("a") == 3
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0


def test_a_maximum_cuts_what_another_limiter_says() -> None:
    limiter = WithMaxWaitRateLimiter(ItemExponentialFailureRateLimiter[str](1, 100), 3)
    assert [limiter.when("a") for _ in range(3)] == [1, 2, 3]


async def test_the_default_holds_back_a_crowd_of_first_failures_to_ten_a_second() -> None:
    limiter: RateLimiter[str] = default_controller_rate_limiter()
    delays = [limiter.when(f"item-{n}") for n in range(120)]
    assert delays[:100] == [0.005] * 100
    assert delays[119] == pytest.approx(2.0)
    await anyio.sleep(100)
    assert limiter.when("late") == 0.005


def test_copies_of_a_bucket_share_its_tokens_and_count_failures_separately() -> None:
    limiter = MaxOfRateLimiter(
        BucketRateLimiter[str](1, 2, clock=lambda: 0.0), ItemExponentialFailureRateLimiter(0.1)
    )
    copied = copy.deepcopy(limiter)
    assert [limiter.when("a"), copied.when("a"), limiter.when("a"), copied.when("a")] == [0.1, 0.1, 1, 2]
    assert (limiter.num_requeues("a"), copied.num_requeues("a")) == (2, 2)
