# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Semantic equality."""

import functools
from typing import Any

import pytest

from controller_runtime.apis.core.v1 import Container, EmptyDirVolumeSource, ResourceRequirements
from controller_runtime.machinery import Struct
from controller_runtime.machinery.equality import deep_equal


@pytest.mark.parametrize(
    ("kind", "a", "b", "equal"),
    [
        (Container, {"name": "a", "args": []}, {"name": "a"}, True),
        (Container, {"name": "a", "args": ["x"]}, {"name": "a"}, False),
        (Container, {"name": "a", "stdin": False}, {"name": "a"}, False),
        (Container, {"name": "a", "future": {"x": []}}, {"name": "a", "future": {"x": None}}, True),
        (Container, {"name": "a", "future": 1}, {"name": "a"}, False),
        (ResourceRequirements, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}, True),
        (ResourceRequirements, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1G"}}, False),
        (ResourceRequirements, {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1", "memory": "1"}}, False),
        (ResourceRequirements, {"limits": {}}, {}, True),
        (EmptyDirVolumeSource, {"sizeLimit": "1Ki"}, {"sizeLimit": "1024"}, True),
    ],
)
def test_structs(kind: type[Struct], a: dict[str, Any], b: dict[str, Any], equal: bool) -> None:
    assert deep_equal(kind.from_dict(a), kind.from_dict(b)) is equal
    assert deep_equal(kind.from_dict(b), kind.from_dict(a)) is equal


def test_kinds_differ_and_json_is_strict_about_truth() -> None:
    assert not deep_equal(EmptyDirVolumeSource(), ResourceRequirements())
    assert not deep_equal({"a": 1}, {"a": True})
    assert deep_equal({"a": [None]}, {"a": [{}]})


class Cached(Struct):
    size: int = 0

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.size


def test_a_cached_property_does_not_count() -> None:
    read, unread = Cached(size=1), Cached(size=1)
    assert read.twice == 2
    assert deep_equal(read, unread)
    assert deep_equal(unread, read)
    assert not deep_equal(read, Cached(size=2))
