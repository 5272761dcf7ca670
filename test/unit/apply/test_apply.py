# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ContainerPort, EnvVar, Volume, VolumeMount
from ctrl_testkit.small import CountedName
from hypothesis import given
from hypothesis import strategies as st

from pkg import apply

PORTS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, "a", "b", "c"])), max_size=6)


@given(st.none() | PORTS, PORTS)
def test_ports_are_upserted_one_by_one_as_by_looking_through_the_list(
    present: list[tuple[int, str | None]] | None, new: list[tuple[int, str | None]]
) -> None:
    want = list(present or ())
    for item in new:
        at = next((i for i, old in enumerate(want) if old[0] == item[0] or old[1] == item[1]), len(want))
        want[at : at + 1] = [item]

    old, ports = (
        [ContainerPort(container_port=number, name=name) for number, name in side]
        for side in (present or (), new)
    )
    result = apply.upsert_port(None if present is None else old, ports)

    assert [(port.container_port, port.name) for port in result or ()] == want


NAMES = st.lists(st.sampled_from("abc"), max_size=5)


@given(st.none() | NAMES, NAMES)
def test_a_name_that_repeats_is_upserted_as_by_looking_through_the_list(
    present: list[str] | None, new: list[str]
) -> None:
    variables = [EnvVar(name=name, value=f"new {number}") for number, name in enumerate(new)]
    old = [EnvVar(name=name, value=f"old {number}") for number, name in enumerate(present or ())]
    want = list(old)
    for item in variables:
        at = next((i for i, known in enumerate(want) if known.name == item.name), len(want))
        want[at : at + 1] = [item]

    assert (apply.upsert_env_vars(None if present is None else old, variables) or []) == want


def test_thousands_of_variables_are_not_compared_with_each_other() -> None:
    before = CountedName.comparisons
    many = 2000
    present, new = (
        [EnvVar.model_construct(name=CountedName(f"E{i}")) for i in range(many)] for _ in range(2)
    )

    result = apply.upsert_env_vars(present, new)

    assert len(result or ()) == many
    assert CountedName.comparisons - before < 10 * many


def test_nothing_to_add_leaves_no_list() -> None:
    assert apply.upsert_env_vars(None, []) is None
    assert apply.upsert_volumes(None, [Volume(name="a")]) == [Volume(name="a")]


def test_volumes_go_by_name_and_mounts_by_path() -> None:
    mounts = apply.upsert_volume_mounts(
        [VolumeMount(name="a", mount_path="/a")], [VolumeMount(name="b", mount_path="/a")]
    )
    volumes = apply.upsert_volumes([Volume(name="a")], [Volume(name="a", empty_dir={})])  # type: ignore[arg-type] # decoded

    assert mounts == [VolumeMount(name="b", mount_path="/a")]
    assert volumes is not None
    assert len(volumes) == 1


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"name": "A"}, {"name": "A", "value": ""}, id="no value is the empty one"),
        pytest.param(
            {"name": "A", "value": "x", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "p"}}},
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "p"}}},
            id="a reference wins, without its apiVersion",
        ),
        pytest.param(
            {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {
                "name": "A",
                "valueFrom": {
                    "resourceFieldRef": {"containerName": "", "resource": "limits.cpu", "divisor": "0"}
                },
            },
            id="a resource with container and divisor",
        ),
        pytest.param(
            {"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}, "newRef": {"x": 1}}},
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "", "key": "k"}, "newRef": {"x": 1}}},
            id="a source that nobody knows is kept",
        ),
    ],
)
def test_a_variable_is_applied_as_a_reference_or_a_value(given: dict[str, Any], want: dict[str, Any]) -> None:
    variable = EnvVar.from_dict(given)

    assert apply.env_var(variable).to_dict() == want
    assert variable == EnvVar.from_dict(given)
