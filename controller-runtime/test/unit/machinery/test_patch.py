# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches on JSON."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller_runtime.machinery.openapi import UNKNOWN
from controller_runtime.machinery.patch import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    merge_patch_diff,
    pointer,
    same,
    strategic_merge_diff,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x"])


def documents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from("abc"), v), max_leaves=8
    )
    return st.dictionaries(st.sampled_from("abc"), values)


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {}, {"a": None}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": {"b": 1}}, {"a": "x"}, {"a": "x"}),
        ({"a": {}}, {"a": {"b": {}}}, {"a": {"b": {}}}),
    ],
)
def test_a_merge_patch_holds_what_changed(
    old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert merge_patch_diff(old, new) == patch


def test_equal_changes_give_equal_texts() -> None:
    """A set of removed fields would have another order in each process."""
    old = {f"field-{number}": number for number in range(20)}
    assert list(merge_patch_diff(old, {})) == sorted(old)
    assert list(strategic_merge_diff(old, {}, UNKNOWN)) == sorted(old)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return value


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents(SCALARS), documents(SCALARS))
def test_applying_the_difference_gives_the_new_document(old: dict[str, Any], new: dict[str, Any]) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert same(apply_merge_patch(old, merge_patch_diff(old, new)), new)


def test_applying_a_merge_patch_leaves_the_target_alone() -> None:
    target = {"a": {"b": 1}, "c": [1]}
    assert apply_merge_patch(target, {"a": {"b": None, "d": {"e": None, "f": 2}}, "c": None}) == {
        "a": {"d": {"f": 2}}
    }
    assert target == {"a": {"b": 1}, "c": [1]}


def test_true_is_not_one() -> None:
    assert not same({"a": [True]}, {"a": [1]})
    assert same(1, 1.0)


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "m/n": {"~": 0}, "b": 1}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2], "m/n": {"~": 0}}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9], "m/n": {"~": 0}}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2], "m/n": {"~": 0}}),
        ([{"op": "replace", "path": "/a/0", "value": 7}], {"a": [7, 2], "m/n": {"~": 0}}),
        ([{"op": "replace", "path": "/m~1n/~0", "value": 7}], {"a": [1, 2], "m/n": {"~": 7}}),
        ([{"op": "replace", "path": "", "value": 7}], 7),
        ([{"op": "move", "from": "/a/0", "path": "/c"}], {"a": [2], "m/n": {"~": 0}, "c": 1}),
        ([{"op": "copy", "from": "/a", "path": "/m~1n/x"}], {"a": [1, 2], "m/n": {"~": 0, "x": [1, 2]}}),
        ([{"op": "test", "path": "/a", "value": [1, 2]}], {"a": [1, 2], "m/n": {"~": 0}}),
        ([{"op": "test", "path": "/absent", "value": None}], {"a": [1, 2], "m/n": {"~": 0}}),
    ],
)
def test_json_patch_operations(patch: list[dict[str, Any]], want: Any) -> None:
    target = {"a": [1, 2], "m/n": {"~": 0}}
    assert apply_json_patch(target, patch) == want
    assert target == {"a": [1, 2], "m/n": {"~": 0}}


@given(st.lists(st.text("~/01"), min_size=1, max_size=3))
def test_a_pointer_leads_through_its_keys(keys: list[str]) -> None:
    document: Any = 7
    for key in reversed(keys):
        document = {key: document}
    with pytest.raises(PatchError, match="test failed"):
        apply_json_patch(document, [{"op": "test", "path": pointer(*keys), "value": 8}])
    assert apply_json_patch(document, [{"op": "test", "path": pointer(*keys), "value": 7}]) == document


LONG = "1" * 5_000


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"op": "remove", "path": "/x"}, "no such key: 'x'"),
        ({"op": "replace", "path": "/x", "value": 1}, "no such key: 'x'"),
        ({"op": "add", "path": "/x/y", "value": 1}, "no such key: 'x'"),
        ({"op": "add", "path": "/a/3", "value": 1}, "no such index: '3'"),
        ({"op": "add", "path": "/a/01", "value": 1}, "no such index: '01'"),
        pytest.param(
            {"op": "remove", "path": f"/a/{LONG}"},
            f"no such index: '{LONG[:221]} ...",
            id="thousands of digits",
        ),
        ({"op": "remove", "path": "/a/-"}, "no such index: '-'"),
        ({"op": "add", "path": "/s/x", "value": 1}, "a scalar has no key or index 'x'"),
        ({"op": "add", "path": "/s/x/y", "value": 1}, "a scalar has no key or index 'x'"),
        ({"op": "test", "path": "/s", "value": "2"}, "test failed at '/s'"),
        ({"op": "move", "from": "/m", "path": "/m/x"}, "a value cannot be moved into itself"),
        ({"op": "add", "path": "/x"}, "value is missing"),
        ({"op": "add", "path": "x", "value": 1}, "path is not a JSON pointer: 'x'"),
        ({"op": "grow", "path": "/x"}, "unknown op 'grow'"),
    ],
)
def test_json_patches_that_do_not_fit_say_why(operation: dict[str, Any], problem: str) -> None:
    with pytest.raises(PatchError) as raised:
        apply_json_patch({"a": [1], "s": "1", "m": {}}, [operation])
    assert str(raised.value) == f"operation 0: {problem}"
