# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The memory of owners is bounded, however many owners users make, and however large."""

from __future__ import annotations

import pytest
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import GVK, metadata_only

from pkg.podgrouper.memory import CAPACITY, Key, Known, Memory

JOB = GVK("batch", "v1", "Job")


def known(rest: bytes = b"", labels: dict[str, str] | None = None) -> Known:
    made = Known()
    made.metadata = metadata_only(JOB)(metadata=ObjectMeta(name="j", labels=labels))
    made.rest = rest
    return made


def key(namespace: str, number: int = 0) -> Key:
    return (JOB, namespace, f"j-{number}")


def test_ten_thousand_owners_of_a_megabyte_are_kept_within_the_bound() -> None:
    memory, text = Memory(), b" " * 2**20
    for number in range(10_000):
        memory.keep(key("a", number), known(text))

    assert memory.weight <= CAPACITY
    assert 0 < len(memory) <= CAPACITY / len(text)
    assert memory.find(key("a", 9_999)) is not None


@pytest.mark.parametrize("labels", [{}, {f"label-{number}": "x" * 63 for number in range(1000)}])
def test_any_number_of_small_owners_is_kept_within_the_bound(labels: dict[str, str]) -> None:
    memory = Memory(capacity=2**20)
    for number in range(10_000):
        memory.keep(key("a", number), known(labels=labels))

    assert memory.weight <= 2**20
    assert len(memory) <= 256


def test_a_namespace_that_fills_it_takes_nothing_from_another() -> None:
    memory = Memory(capacity=2**20)
    memory.keep(key("quiet"), known(b" " * 1000))
    for number in range(1000):
        memory.keep(key("loud", number), known(b" " * 100_000))

    assert memory.find(key("quiet")) is not None
    assert memory.find(key("loud", 999)) is not None


def test_what_was_used_last_is_kept_longest() -> None:
    memory = Memory(capacity=3 * 100_000)
    for number in range(2):
        memory.keep(key("a", number), known(b" " * 90_000))
    assert memory.find(key("a", 0)) is not None
    for number in range(2, 4):
        memory.keep(key("a", number), known(b" " * 90_000))

    assert [memory.find(key("a", number)) is not None for number in range(4)] == [True, False, True, True]


def test_what_changes_is_weighed_again_and_what_goes_weighs_nothing() -> None:
    memory = Memory()
    memory.keep(key("a"), changed := known(b" " * 1000))
    before = memory.weight
    changed.rest = b""
    memory.keep(key("a"), changed)
    assert memory.weight == before - 1000

    memory.drop(key("a"))
    memory.drop(key("a"))
    memory.drop(key("unknown"))
    assert (memory.weight, len(memory)) == (0, 0)
