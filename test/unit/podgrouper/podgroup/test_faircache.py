# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A cache that tenants fill is bounded, and no tenant can evict the entries of others."""

from __future__ import annotations

import pytest
from controller_runtime.machinery import NamespacedName

from pkg.podgrouper.podgroup import FairCache
from testkit.grouping import Clock


def key(namespace: str, number: int = 0) -> NamespacedName:
    return NamespacedName(namespace, f"j-{number}")


@pytest.fixture
def cache(clock: Clock) -> FairCache[NamespacedName, int]:
    return FairCache(1000, 10.0, clock)


@pytest.mark.parametrize("size", [7, 999])
def test_any_number_of_values_is_kept_within_the_bound(
    cache: FairCache[NamespacedName, int], size: int
) -> None:
    for number in range(10_000):
        cache.keep(key("a", number), number, size)

    assert cache.size == size * len(cache)
    assert 1000 - size < cache.size <= 1000
    assert cache.find(key("a", 9_999)) == 9_999


def test_a_value_that_exceeds_the_bound_is_not_kept(cache: FairCache[NamespacedName, int]) -> None:
    cache.keep(key("a"), 1, 1001)

    assert (cache.size, len(cache)) == (0, 0)


def test_a_namespace_that_fills_it_takes_nothing_from_others(cache: FairCache[NamespacedName, int]) -> None:
    for number in range(9):
        cache.keep(key(f"quiet-{number}"), number, 50)
    for number in range(1000):
        cache.keep(key("loud", number), number, 60)

    assert [cache.find(key(f"quiet-{number}")) for number in range(9)] == list(range(9))
    assert cache.find(key("loud", 999)) == 999


def test_what_was_used_last_is_kept_longest(cache: FairCache[NamespacedName, int]) -> None:
    for number in range(2):
        cache.keep(key("a", number), number, 300)
    assert cache.find(key("a", 0)) == 0
    for number in range(2, 4):
        cache.keep(key("a", number), number, 300)

    assert [cache.find(key("a", number)) for number in range(4)] == [0, None, 2, 3]


def test_what_changes_is_weighed_again_and_what_goes_weighs_nothing(
    cache: FairCache[NamespacedName, int],
) -> None:
    cache.keep(key("a"), 1, 600)
    cache.keep(key("a"), 2, 500)
    assert (cache.find(key("a")), cache.size, len(cache)) == (2, 500, 1)

    cache.drop(key("a"))
    cache.drop(key("a"))
    cache.drop(key("unknown"))
    assert (cache.size, len(cache)) == (0, 0)


def test_a_value_is_forgotten_after_its_time(cache: FairCache[NamespacedName, int], clock: Clock) -> None:
    cache.keep(key("a"), 1)
    clock.now = 9.9
    assert cache.find(key("a")) == 1
    clock.now = 10.0
    assert cache.find(key("a")) is None
    assert cache.size == 0


def test_a_value_without_a_time_is_kept(clock: Clock) -> None:
    cache: FairCache[NamespacedName, int] = FairCache(1000, clock=clock)
    cache.keep(key("a"), 1)
    clock.now = 1e9

    assert cache.find(key("a")) == 1
