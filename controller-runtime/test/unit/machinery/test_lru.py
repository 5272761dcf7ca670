# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from controller_runtime.machinery.lru import LRU


def test_the_item_that_was_used_longest_ago_is_dropped() -> None:
    items: LRU[str, int] = LRU(2)
    items["a"], items["b"] = 1, 2
    assert items.use("a") == 1
    items["c"] = 3
    assert [*items] == ["a", "c"]
    items["a"] = 4
    items["d"] = 5
    assert dict(items) == {"a": 4, "d": 5}


def test_an_item_that_is_missing_is_not_used() -> None:
    items: LRU[str, int] = LRU(2)
    assert items.use("a") is None
    assert not items
