# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Field sets: additions and removals by an apply, and the format of paths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import kinds, ownership
from controller_runtime.machinery.patch import same

POD = kinds.properties_of(Pod).schema

_values = st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["", "x", "y"]))
_env = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("AB")}, optional={"value": _values}),
    min_size=1,
    unique_by=lambda item: item["name"],
)
_containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ab")},
        optional={"env": _env, "args": st.lists(_values, min_size=1, max_size=2), "image": _values},
    ),
    min_size=1,
    unique_by=lambda item: item["name"],
)
_objects = st.fixed_dictionaries(
    {},
    optional={
        "data": st.dictionaries(st.sampled_from("abc"), _values, min_size=1),
        "spec": st.fixed_dictionaries(
            {"containers": _containers},
            optional={"nodeSelector": st.dictionaries(st.sampled_from("ab"), _values, min_size=1)},
        ),
    },
)


def applied(live: Any, before: ownership.FieldSet, config: Any) -> Any:
    fields = ownership.fields_of(config, POD)
    return ownership.merge(ownership.remove(live, before - fields, kept=fields), config, POD)


@given(_objects, _objects)
def test_a_difference_has_the_paths_that_are_new_or_differ_and_those_that_are_gone(
    old: Any, new: Any
) -> None:
    before, after = ownership.fields_of(old, POD), ownership.fields_of(new, POD)
    differs = frozenset(p for p in after if not same(ownership.value_at(old, p), ownership.value_at(new, p)))
    assert ownership.difference(old, new, POD) == (differs, before - after)


@given(_objects, _objects)
def test_a_sole_owner_gets_exactly_what_it_applied_last(first: Any, second: Any) -> None:
    before = repr((first, second))
    after = applied(first, ownership.fields_of(first, POD), second)
    assert repr((first, second)) == before, "the arguments are the caller's"
    assert after == second
    assert ownership.fields_of(after, POD) == ownership.fields_of(second, POD)


@given(_objects, _objects)
def test_applying_again_changes_nothing(live: Any, config: Any) -> None:
    once = ownership.merge(live, config, POD)
    assert ownership.merge(once, config, POD) == once
    for path in ownership.fields_of(config, POD):
        assert same(ownership.value_at(once, path), ownership.value_at(config, path))


def test_what_a_server_writes_belongs_to_nobody() -> None:
    metadata = {
        "name": "x",
        "uid": "u",
        "generation": 1,
        "managedFields": [{"manager": "m"}],
        "labels": {"a": "b"},
    }
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    assert ownership.fields_of(obj, POD) == {("metadata", "labels", "a")}


def test_paths_are_written_as_messages_have_them() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80}]}
    fields = ownership.fields_of(
        {"metadata": {"finalizers": ["a/x"]}, "spec": {"containers": [container]}}, POD
    )
    assert sorted(map(ownership.text, fields)) == [
        '.metadata.finalizers[="a/x"]',
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].name',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]',
        '.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort',
    ]


@pytest.mark.parametrize("item", [{"name": []}, {"image": "b"}, 1])
def test_items_without_keys_that_are_plain_values_are_one_list(item: Any) -> None:
    paths = ownership.fields_of({"spec": {"containers": [item, {"name": "a"}]}}, POD)

    assert paths == {("spec", "containers")}
