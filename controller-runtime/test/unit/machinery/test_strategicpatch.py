# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from controller_runtime.machinery import JSON, openapi
from controller_runtime.machinery.patch import Document, StrategicMergeError, same, strategic_merge_patch
from ctrl_testkit.small import CountedName

POD_TEMPLATE = openapi.merge_schema("core.v1.PodTemplateSpec")
POD = openapi.merge_schema("core.v1.Pod")
SERVICE = openapi.merge_schema("core.v1.Service")


def merged(original: Document, patch: Document) -> Document:
    spec: Document = strategic_merge_patch({"spec": original}, {"spec": patch}, POD_TEMPLATE)["spec"]
    return spec


@pytest.mark.parametrize(
    ("original", "patch", "want"),
    [
        pytest.param({"a": 1, "b": 1}, {"b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}, id="maps merge"),
        pytest.param({"a": 1, "b": {"c": 1}}, {"a": None, "b": {"c": None}}, {"b": {}}, id="null deletes"),
        pytest.param({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="null is not stored"),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="a list without a merge key is replaced",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "tty": True}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "1", "tty": True}, {"name": "b"}]},
            id="items merge by key and the patch's order comes first",
        ),
        pytest.param(
            {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "x"}]}]},
            {"containers": [{"name": "a", "ports": [{"containerPort": 1, "protocol": "UDP"}]}]},
            {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "x", "protocol": "UDP"}]}]},
            id="each list by its own key",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
            id="an item is deleted",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"$patch": "replace"}]},
            {"containers": [{"name": "c"}]},
            id="a list is replaced",
        ),
        pytest.param(
            {"securityContext": {"runAsUser": 1}},
            {"securityContext": {"fsGroup": 2, "$patch": "replace"}},
            {"securityContext": {"fsGroup": 2}},
            id="a map is replaced",
        ),
        pytest.param(
            {"securityContext": {"runAsUser": 1}},
            {"securityContext": {"$patch": "delete"}},
            {"securityContext": {}},
            id="a map is emptied",
        ),
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "configMap": {"name": "c"}, "$retainKeys": ["name", "configMap"]}]},
            {"volumes": [{"name": "a", "configMap": {"name": "c"}}]},
            id="only retained keys stay",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
            {
                "$setElementOrder/imagePullSecrets": [{"name": "c"}, {"name": "d"}, {"name": "a"}],
                "imagePullSecrets": [{"name": "d"}],
            },
            {"imagePullSecrets": [{"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "a"}]},
            id="an order is set, the rest is woven in as it stood",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]},
            {"$setElementOrder/imagePullSecrets": [{"name": "b"}, {"name": "a"}]},
            {"imagePullSecrets": [{"name": "b"}, {"name": "a"}]},
            id="only the order changes",
        ),
        pytest.param(
            {},
            {"securityContext": {"x": {"$patch": "delete"}, "$retainKeys": ["x"], "y": 1}},
            {"securityContext": {"y": 1}},
            id="directives are not stored",
        ),
        pytest.param({}, {"x": {"$patch": "replace", "a": 1}}, {}, id="a directive adds nothing"),
        pytest.param({"x": "a"}, {"x": {"$patch": "delete"}}, {}, id="a directive for a map deletes a text"),
        pytest.param({}, {"$setElementOrder/containers": [{"name": "a"}]}, {}, id="an order of no list"),
        pytest.param(
            {},
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b"}, {"name": "a", "env": [{"name": "e", "$patch": "delete"}]}],
            },
            {"containers": [{"name": "b"}, {"name": "a", "env": []}]},
            id="the order of a new list",
        ),
        pytest.param({"containers": []}, {"containers": []}, {"containers": []}, id="an empty list"),
        pytest.param(
            {"x": "a"}, {"$deleteFromPrimitiveList/x": ["a"]}, {"x": "a"}, id="nothing is deleted from a text"
        ),
    ],
)
def test_merging(original: Document, patch: Document, want: Document) -> None:
    assert merged(original, patch) == want


def test_lists_of_scalars_merge_as_sets_and_can_be_deleted_from() -> None:
    original = {"metadata": {"finalizers": ["a", "b"]}}

    added = strategic_merge_patch(original, {"metadata": {"finalizers": ["c", "a"]}}, POD)
    assert sorted(added["metadata"]["finalizers"]) == ["a", "b", "c"]

    gone = strategic_merge_patch(
        added, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "c"]}}, POD
    )
    assert gone["metadata"]["finalizers"] == ["b"]


@pytest.mark.parametrize(("present", "other"), [([1, 2], True), ([True], 1), ([1], 1.0), (["1"], 1)])
def test_members_of_different_types_are_not_merged_in_a_set(present: list[JSON], other: JSON) -> None:
    with pytest.raises(StrategicMergeError, match="list element types are not identical"):
        strategic_merge_patch(
            {"metadata": {"finalizers": present}}, {"metadata": {"finalizers": [other]}}, POD
        )


def test_an_item_with_the_key_true_is_not_the_one_with_the_key_1() -> None:
    original: Document = {"ports": [{"port": 1, "name": "a"}]}
    for patch, want in (
        ([{"port": True, "name": "b"}], [{"port": True, "name": "b"}, {"port": 1, "name": "a"}]),
        ([{"port": True, "$patch": "delete"}], [{"port": 1, "name": "a"}]),
    ):
        ports = strategic_merge_patch({"spec": original}, {"spec": {"ports": patch}}, SERVICE)["spec"][
            "ports"
        ]
        assert same(ports, want)
        original = {"ports": [{"port": 1, "name": "a"}]}


@pytest.mark.parametrize(
    ("original", "patch", "text"),
    [
        pytest.param(
            {"containers": [{"name": "a"}]},
            {"containers": [{"image": "x", "tty": True}]},
            "map: map[image:x tty:true] does not contain declared merge key: name",
            id="a patch's item without its key",
        ),
        pytest.param(
            {"imagePullSecrets": [{}]},
            {"imagePullSecrets": [{"name": "a"}]},
            "map: map[] does not contain declared merge key: name",
            id="a stored item without its key",
        ),
        pytest.param(
            {"a": {}}, {"a": {"$patch": "x"}}, "unknown patch type: x in map: map[$patch:x]", id="directive"
        ),
        pytest.param(
            {"containers": []},
            {"containers": [{"$patch": "x"}]},
            "unknown patch type: x in map: map[$patch:x]",
            id="directive in a list",
        ),
        pytest.param(
            {"containers": []},
            {"containers": [{"$patch": "merge"}]},
            "merging lists cannot yet be specified in the patch",
            id="merge in a list",
        ),
        pytest.param(
            {"a": {}},
            {"a": {"b": 1, "$retainKeys": ["c"]}},
            "invalid patch format of retainKeys",
            id="retainKeys",
        ),
        pytest.param(
            {"containers": [{"name": "a"}]},
            {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]},
            "The order in patch list",
            id="an item that the order does not name",
        ),
        pytest.param(
            {},
            {"$setElementOrder/containers": {}},
            "invalid patch format of setElementOrder list",
            id="no list",
        ),
        pytest.param(
            {}, {"$setElementOrder": []}, "invalid patch format of setElementOrder list", id="order of what"
        ),
        pytest.param(
            {},
            {"$deleteFromPrimitiveList": ["a"]},
            "invalid patch format of primitive list",
            id="deletion from what",
        ),
        pytest.param(
            {"containers": [{"name": "a"}]},
            {"containers": ["a"]},
            "list element types are not identical: [[map[name:a]] [a]]",
            id="a map and a text",
        ),
        pytest.param(
            {"x": [1, 2]},
            {"$deleteFromPrimitiveList/x": [True]},
            "list element types are not identical: [[1 2] [true]]",
            id="true is deleted from numbers",
        ),
        pytest.param(
            {"x": [[1]]},
            {"$deleteFromPrimitiveList/x": [[1]]},
            "lists of lists are not supported",
            id="a list is deleted from lists",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(original: Document, patch: Document, text: str) -> None:
    with pytest.raises(StrategicMergeError) as raised:
        merged(original, patch)
    assert str(raised.value).startswith(text)


def test_an_error_has_the_path_of_its_field() -> None:
    with pytest.raises(StrategicMergeError) as raised:
        merged(
            {"containers": [{"name": "a", "env": [{"name": "b"}]}]},
            {"containers": [{"name": "a", "env": [{"value": "c"}]}]},
        )
    assert raised.value.path == ["spec", "containers", "env"]


def test_thousands_of_items_are_not_compared_with_each_other() -> None:
    before = CountedName.comparisons
    many = 2000
    original = {"volumes": [{"name": CountedName(f"v{i}")} for i in range(many)]}
    patch = {"volumes": [{"name": CountedName(f"v{i}"), "emptyDir": {}} for i in reversed(range(2 * many))]}

    names = [volume["name"] for volume in merged(original, patch)["volumes"]]

    assert names == [f"v{i}" for i in reversed(range(2 * many))]
    assert CountedName.comparisons - before < 50 * many


def test_a_map_whose_strategy_is_to_replace_it_does_not_merge() -> None:
    budget = openapi.merge_schema("policy.v1.PodDisruptionBudget")
    original: Document = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    patch: Document = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    assert strategic_merge_patch(original, patch, budget) == {
        "spec": {"selector": {"matchLabels": {"b": "2"}}}
    }
