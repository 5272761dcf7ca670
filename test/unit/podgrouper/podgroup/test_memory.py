# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A memory that tenants fill is bounded, and no tenant can evict the entries of others."""

from __future__ import annotations

import pytest
from controller_runtime.machinery import NamespacedName

from pkg.podgrouper.podgroup import Memory
from testkit.owner_world import Clock


def key(namespace: str, number: int = 0) -> NamespacedName:
    return NamespacedName(namespace, f"j-{number}")


@pytest.fixture
def memory(clock: Clock) -> Memory[NamespacedName, int]:
    return Memory(1000, 10.0, clock)


@pytest.mark.parametrize("size", [1, 7, 100, 999])
def test_any_number_of_values_is_kept_within_the_bound(
    memory: Memory[NamespacedName, int], size: int
) -> None:
    for number in range(10_000):
        memory.keep(key("a", number), number, size)

    assert memory.size == size * len(memory)
    assert 1000 - size < memory.size <= 1000
    assert memory.find(key("a", 9_999)) == 9_999


def test_a_value_that_exceeds_the_bound_is_not_kept(memory: Memory[NamespacedName, int]) -> None:
    memory.keep(key("a"), 1, 1001)

    assert (memory.size, len(memory)) == (0, 0)


def test_a_namespace_that_fills_it_takes_nothing_from_others(memory: Memory[NamespacedName, int]) -> None:
    for number in range(9):
        memory.keep(key(f"quiet-{number}"), number, 50)
    for number in range(1000):
        memory.keep(key("loud", number), number, 60)

    assert [memory.find(key(f"quiet-{number}")) for number in range(9)] == list(range(9))
    assert memory.find(key("loud", 999)) == 999


def test_what_was_used_last_is_kept_longest(memory: Memory[NamespacedName, int]) -> None:
    for number in range(2):
        memory.keep(key("a", number), number, 300)
    assert memory.find(key("a", 0)) == 0
    for number in range(2, 4):
        memory.keep(key("a", number), number, 300)

    assert [memory.find(key("a", number)) for number in range(4)] == [0, None, 2, 3]


def test_what_changes_is_weighed_again_and_what_goes_weighs_nothing(
    memory: Memory[NamespacedName, int],
) -> None:
    memory.keep(key("a"), 1, 600)
    memory.keep(key("a"), 2, 500)
    assert (memory.find(key("a")), memory.size, len(memory)) == (2, 500, 1)

    memory.drop(key("a"))
    memory.drop(key("a"))
    memory.drop(key("unknown"))
    assert (memory.size, len(memory)) == (0, 0)


def test_a_value_is_forgotten_after_its_time(memory: Memory[NamespacedName, int], clock: Clock) -> None:
    memory.keep(key("a"), 1)
    clock.now = 9.9
    assert memory.find(key("a")) == 1
    clock.now = 10.0
    assert memory.find(key("a")) is None
    assert memory.size == 0


def test_a_value_without_a_time_is_kept(clock: Clock) -> None:
    memory: Memory[NamespacedName, int] = Memory(1000, clock=clock)
    memory.keep(key("a"), 1)
    clock.now = 1e9

    assert memory.find(key("a")) == 1
