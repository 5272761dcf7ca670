# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A strategic merge diff, merged into the old object, gives the new one."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_runtime.machinery import openapi
from controller_runtime.machinery.patch import strategic_merge_diff, strategic_merge_patch

DEPLOYMENT = openapi.merge_schema("apps.v1.Deployment")


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(containers), **fields}}}}


def merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return strategic_merge_patch(copy.deepcopy(old), copy.deepcopy(patch), DEPLOYMENT)


A, B = {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param(pod(A), pod(A), {}, id="equal"),
        pytest.param(
            pod(A, B),
            pod(A, {"name": "b", "image": "b:2"}),
            pod({"name": "b", "image": "b:2"}, **{"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]}),
            id="an item changes",
        ),
        pytest.param(
            pod(A, B),
            pod(B, A),
            {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}}},
            id="only the order changes",
        ),
        pytest.param(
            pod(A, B),
            pod(B),
            pod({"$patch": "delete", "name": "a"}, **{"$setElementOrder/containers": [{"name": "b"}]}),
            id="an item is removed",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x", "y"]}},
            {"metadata": {"finalizers": ["y", "z"]}},
            {
                "metadata": {
                    "finalizers": ["z"],
                    "$deleteFromPrimitiveList/finalizers": ["x"],
                    "$setElementOrder/finalizers": ["y", "z"],
                }
            },
            id="a set changes",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}}, {"metadata": {}}, {"metadata": {"labels": None}}, id="a map goes"
        ),
        pytest.param(
            pod(A, tolerations=[{"key": "x"}]),
            pod(A, tolerations=[{"key": "y"}]),
            {"spec": {"template": {"spec": {"tolerations": [{"key": "y"}]}}}},
            id="an atomic list is sent whole",
        ),
        pytest.param(
            pod({"name": "a", "ports": [{"containerPort": 1}]}),
            pod({"name": "a", "ports": [{"containerPort": 1, "protocol": each} for each in ("TCP", "UDP")]}),
            pod(
                {
                    "name": "a",
                    "ports": [
                        {"$patch": "replace"},
                        {"containerPort": 1, "protocol": "TCP"},
                        {"containerPort": 1, "protocol": "UDP"},
                    ],
                },
                **{"$setElementOrder/containers": [{"name": "a"}]},
            ),
            id="a key that occurs twice",
        ),
    ],
)  # fmt: skip
def test_the_patch_holds_what_differs(
    old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert strategic_merge_diff(old, new, DEPLOYMENT) == patch
    assert merged(old, patch) == new


def test_true_and_1_are_different_members_of_a_set() -> None:
    old, new = {"metadata": {"finalizers": [True]}}, {"metadata": {"finalizers": [1]}}
    assert strategic_merge_diff(old, new, DEPLOYMENT)["metadata"] == {
        "finalizers": [1],
        "$deleteFromPrimitiveList/finalizers": [True],
        "$setElementOrder/finalizers": [1],
    }


def test_an_item_that_another_writer_added_stays() -> None:
    patch = strategic_merge_diff(pod(A), pod({"name": "a", "image": "a:2"}), DEPLOYMENT)
    assert merged(pod(A, B), patch) == pod({"name": "a", "image": "a:2"}, B)


ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz")}, optional={"value": st.sampled_from(["", "1"])}),
    unique_by=lambda item: item["name"],
)
# The API server puts items with the same key next to each other.
PORTS = st.lists(st.fixed_dictionaries({"containerPort": st.integers(1, 2)}), max_size=3).map(
    lambda items: sorted(items, key=lambda item: item["containerPort"])
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")},
        optional={"image": st.sampled_from("ij"), "env": ENV, "ports": PORTS, "args": st.lists(st.text("v"))},
    ),
    unique_by=lambda item: item["name"],
)
DEPLOYMENTS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "finalizers": st.lists(st.sampled_from("fgh"), unique=True),
                "labels": st.dictionaries(st.sampled_from("lm"), st.sampled_from("01")),
            },
        ),
        "spec": st.builds(lambda items: {"template": {"spec": {"containers": items}}}, CONTAINERS),
    }
)


@given(old=DEPLOYMENTS, new=DEPLOYMENTS)
def test_the_patch_turns_any_object_into_any_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, strategic_merge_diff(old, new, DEPLOYMENT)) == new
