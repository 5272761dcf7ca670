# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Changes between two values: they are complete, and their paths are readable."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testkit.replay import replay

from trainerctl.offline.trace.diff import ABSENT, difference

NAMES = st.sampled_from("abcd")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | NAMES,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(NAMES, below, max_size=3)
        | st.lists(st.fixed_dictionaries({"name": NAMES | st.integers(0, 2), "x": below}), max_size=4)
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_changes_replay_from_the_earlier_value_to_the_later(before: Any, after: Any) -> None:
    changes = list(difference(before, after))
    assert replay(before, changes) == after


@given(JSON)
def test_nothing_changes_between_equals(value: Any) -> None:
    assert list(difference(value, value)) == []
    assert replay(ABSENT, difference(ABSENT, value)) == value


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ({}, {"a": {"b": 1}}, ["a.b"]),
        (
            {"env": [{"name": "A"}]},
            {"env": [{"name": "B"}, {"name": "A", "value": "1"}]},
            ["env[B]", "env[A].value"],
        ),
        ({}, {"ports": [{"containerPort": 80}]}, ["ports[80]"]),
        ({"args": ["a"]}, {"args": ["b"]}, ["args"]),
        ({"l": {"a.b/c": "1"}}, {"l": {}}, ['l["a.b/c"]']),
        ({"env": [{"name": "A"}, {"name": "B"}]}, {"env": [{"name": "B"}, {"name": "A"}]}, ["env"]),
    ],
)
def test_paths_name_list_items(before: Any, after: Any, where: list[str]) -> None:
    assert [change.where for change in difference(before, after)] == where
