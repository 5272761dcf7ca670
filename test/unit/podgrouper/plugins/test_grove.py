# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

GroupGrove = Callable[..., Awaitable[Metadata]]
PACK = {"topologyConstraint": {"packConstraint": {"required": "rack", "preferred": "host"}}}


@pytest.fixture
def group_grove(make_object: Any, make_pod: Any, group: Any) -> GroupGrove:
    async def group_grove(
        *podgroups: Any,
        on_set: dict[str, Any] | None = None,
        on_gang: dict[str, Any] | None = None,
        labels: Any = None,
        **spec: Any,
    ) -> Metadata:
        clique_set = make_object("grove.io/v1alpha1", "PodCliqueSet", "set", **(on_set or {}))
        spec = {"podgroups": list(podgroups), **spec}
        gang = make_object("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec=spec, **(on_gang or {}))
        labels = {"grove.io/podgang": "gang"} if labels is None else labels
        metadata: Metadata = await group(make_pod("p", clique_set, labels=labels), clique_set, gang)
        return metadata

    return group_grove


def _group(name: Any, least: Any = 1, *pods: str, **more: Any) -> dict[str, Any]:
    references = [{"namespace": "team-a", "name": pod} for pod in pods]
    return {"name": name, "minReplicas": least, "podReferences": references, **more}


async def test_a_gang_is_a_group_and_its_groups_are_subgroups(
    group_grove: GroupGrove, sub_groups: Any
) -> None:
    metadata = await group_grove(_group("leader", 1, "l"), _group("worker", 2, "o", "p"))

    assert (metadata.name, metadata.min_available) == ("pg-gang-uid-gang", 3)
    assert sub_groups(metadata) == {"leader": (1, None, ["l"]), "worker": (2, None, ["o", "p"])}


async def test_groups_kept_together_have_a_parent(group_grove: GroupGrove, sub_groups: Any) -> None:
    configs = [
        {"name": "all", "podGroupNames": ["a", "b"]},
        {"name": "none", "podGroupNames": []},
        {"name": "last", "podGroupNames": ["b", "unknown"]},
    ]

    metadata = await group_grove(_group("a"), _group("b"), topologyConstraintGroupConfigs=configs)

    assert {name: (least, parent) for name, (least, parent, _) in sub_groups(metadata).items()} == {
        "all": (0, None),
        "last": (0, None),
        "a": (1, "all"),
        "b": (1, "last"),
    }


async def test_constraints_stand_at_the_gang_the_parents_and_the_groups(group_grove: GroupGrove) -> None:
    named = {"annotations": {"grove.io/topology-name": "t", "kai.scheduler/topology": "other"}}
    configs = [{"name": "all", "podGroupNames": ["a"], **PACK}]

    metadata = await group_grove(
        _group("a", **PACK), on_gang=named, topologyConstraintGroupConfigs=configs, **PACK
    )

    for constraint in (metadata, *(each.topology_constraints for each in metadata.sub_groups)):
        assert constraint is not None
        assert (constraint.topology, constraint.required_topology_level) == ("t", "rack")
        assert constraint.preferred_topology_level == "host"


async def test_the_sets_labels_and_annotations_count_where_the_gang_has_none(
    group_grove: GroupGrove,
) -> None:
    on_set = {
        "labels": {"priorityClassName": "set", "kai.scheduler/preemptibility": "preemptible", "both": "set"},
        "annotations": {"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "rack"},
    }

    metadata = await group_grove(
        on_set=on_set, on_gang={"labels": {"both": "gang"}}, priorityClassName="spec"
    )

    assert metadata.labels is not None
    assert metadata.labels["both"] == "gang"
    assert (metadata.priority_class_name, metadata.preemptibility) == ("set", "preemptible")
    assert (metadata.topology, metadata.required_topology_level) == ("t", "rack")


async def test_the_gangs_own_priority_class_counts_even_when_empty(group_grove: GroupGrove) -> None:
    assert (await group_grove(priorityClassName="")).priority_class_name == ""
    assert (await group_grove()).priority_class_name == "train"


AT_0 = r"failed to parse spec.podgroups\[0\] from PodGang team-a/gang. Err: "
REFERENCE = AT_0 + r"failed to parse spec.podgroups\[0\].podreferences\[0\] from PodGang team-a/gang. Err: "


@pytest.mark.parametrize(
    ("podgroups", "more", "message"),
    [
        ([7], {}, r"invalid structure of spec.podgroup\[0\] in PodGang team-a/gang"),
        ([_group(7)], {}, AT_0 + r"failed to parse 'name' field. Err: \.name accessor error"),
        ([{}], {}, AT_0 + "missing required 'name' field"),
        ([{"name": "a"}], {}, AT_0 + "missing required 'minReplicas' field"),
        ([_group("a", "1")], {}, AT_0 + r"failed to parse 'minReplicas' field. Err: \.minReplicas accessor"),
        ([_group("a", 0)], {}, AT_0 + "invalid 'minReplicas' field. Must be greater than 0"),
        ([{"name": "a", "minReplicas": 1}], {}, AT_0 + "missing required 'podReferences' field"),
        ([_group("a", podReferences={})], {}, AT_0 + "failed to parse 'podReferences' field"),
        (
            [_group("a", podReferences=[7])],
            {},
            AT_0 + r"invalid spec.podgroup\[0\].podReferences\[0\] in PodGang",
        ),
        ([_group("a", podReferences=[{}])], {}, REFERENCE + "missing required 'namespace' field"),
        (
            [_group("a", podReferences=[{"namespace": "team-a"}])],
            {},
            REFERENCE + "missing required 'name' field",
        ),
        (
            [_group("a", podReferences=[{"namespace": "team-b", "name": "p"}])],
            {},
            AT_0
            + "cross-namespace pod reference not allowed: pod team-b/p cannot be referenced from PodGang in",
        ),
        (
            [_group("a", **PACK)],
            {},
            AT_0 + "failed to parse topology constraint from PodGang team-a/gang. Err: ",
        ),
        (
            [],
            PACK,
            (
                "failed to apply topology constraints from PodGang team-a/gang. Err: failed to parse topology "
                "from PodGang, Err: topology name cannot be empty when"
            ),
        ),
        (
            [],
            {"podgroups": {}},
            r"failed to get spec.podgroups from PodGang team-a/gang. Err: \.spec\.podgroups",
        ),
        (
            [],
            {"priorityClassName": 7},
            "failed to get spec.priorityClassName from PodGang team-a/gang. Err: ",
        ),
        (
            [],
            {"topologyConstraintGroupConfigs": {}},
            "failed to parse 'topologyConstraintGroupConfigs' field",
        ),
        (
            [],
            {"topologyConstraintGroupConfigs": [7]},
            r"invalid structure of spec\.topologyConstraintGroupConfigs",
        ),
        (
            [],
            {"topologyConstraintGroupConfigs": [{}]},
            r"topologyConstraintGroupConfig\[0\]: missing required 'name'",
        ),
        (
            [],
            {"topologyConstraintGroupConfigs": [{"name": "a", "podGroupNames": [7]}]},
            r"Config\[0\]: failed to parse 'podGroupNames' field. Err: \.podGroupNames accessor error",
        ),
        (
            [],
            {"topologyConstraintGroupConfigs": [{"name": "a", "podGroupNames": ["a"], **PACK}]},
            "failed to parse topology from topologyConstraintGroupConfig a. Err: topology name cannot",
        ),
        (
            [],
            {"on_set": {"labels": {"kai.scheduler/preemptibility": "maybe"}}},
            "failed to get metadata from top owner team-a/gang. Err: failed to parse preemptibility from top owner",
        ),
        ([], {"labels": {}}, r"label for podgang name \(key: grove.io/podgang\) not found in pod team-a/p"),
        ([], {"labels": {"grove.io/podgang": "gone"}}, "failed to get PodGang team-a/gone. Err: podgangs"),
    ],
)
async def test_what_is_refused(
    podgroups: list[Any], more: dict[str, Any], message: str, group_grove: GroupGrove
) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_grove(*podgroups, **more)
