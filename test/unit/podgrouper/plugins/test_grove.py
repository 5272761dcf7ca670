# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import Rules
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import pod_group_for
from testkit.grouping import group_of, make_object, make_pod

PACK = {"topologyConstraint": {"packConstraint": {"required": "rack", "preferred": "host"}}}
AT_0 = r"failed to parse spec.podgroups\[0\] from PodGang team-a/gang. Err: "


def _groups(**fields: Any) -> dict[str, Any]:
    return {"podgroups": [{"name": "a", "minReplicas": 1, **fields}]}


def _configs(config: Any) -> dict[str, Any]:
    return {"topologyConstraintGroupConfigs": [config]}


@pytest.mark.parametrize(
    ("spec", "labels", "message"),
    [
        (_groups(minReplicas="1"), {}, AT_0 + r"failed to parse 'minReplicas' field. Err: \.minReplicas acc"),
        (_groups(), {}, AT_0 + "missing required 'podReferences' field"),
        (
            _groups(podReferences=[{"namespace": "team-b", "name": "p"}]),
            {},
            AT_0
            + "cross-namespace pod reference not allowed: pod team-b/p cannot be referenced from PodGang in",
        ),
        (
            {"priorityClassName": 7},
            {},
            "failed to get spec.priorityClassName from PodGang team-a/gang. Err: ",
        ),
        (
            {"topologyConstraintGroupConfigs": {}},
            {},
            "failed to parse 'topologyConstraintGroupConfigs' field",
        ),
        (
            _configs(7),
            {},
            r"invalid structure of spec\.topologyConstraintGroupConfigs\[0\] in PodGang team-a",
        ),
        (
            _configs({"name": "a", "podGroupNames": ["a"], **PACK}),
            {},
            "failed to parse topology from topologyConstraintGroupConfig a. Err: topology name cannot",
        ),
        (
            {},
            {"kai.scheduler/preemptibility": "maybe"},
            "failed to get metadata from top owner team-a/gang. Err: failed to parse preemptibility from top owner",
        ),
    ],
)
async def test_what_is_refused(spec: dict[str, Any], labels: dict[str, str], message: str) -> None:
    clique_set = make_object("grove.io/v1alpha1", "PodCliqueSet", "set", labels=labels)
    gang = make_object("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec=spec)

    with pytest.raises(GroupingError, match=message):
        await group_of(make_pod("p", clique_set, labels={"grove.io/podgang": "gang"}), clique_set, gang)


async def test_groves_annotation_names_the_topology_before_kais() -> None:
    annotations = {"grove.io/topology-name": "t", "kai.scheduler/topology": "other"}
    clique_set = make_object("grove.io/v1alpha1", "PodCliqueSet", "set")
    gang = make_object("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec=PACK, annotations=annotations)

    metadata = await group_of(
        make_pod("p", clique_set, labels={"grove.io/podgang": "gang"}), clique_set, gang
    )

    assert (metadata.topology, metadata.required_topology_level) == ("t", "rack")


async def test_a_parent_requires_only_the_subgroups_that_it_contains() -> None:
    """It may name pod groups that the gang does not have, or one pod group twice."""
    parts: list[dict[str, Any]] = [
        {"name": name, "minReplicas": 1, "podReferences": []} for name in ("a", "b")
    ]
    configs = [
        {"name": "first", "podGroupNames": ["a", "b", "gone"], **PACK},
        {"name": "second", "podGroupNames": ["b", "b"], **PACK},
        {"name": "third", "podGroupNames": ["gone"], **PACK},
    ]
    spec = {"podgroups": parts, "topologyConstraintGroupConfigs": configs}
    clique_set = make_object("grove.io/v1alpha1", "PodCliqueSet", "set")
    annotations = {"grove.io/topology-name": "t"}
    gang = make_object("scheduler.grove.io/v1alpha1", "PodGang", "gang", spec=spec, annotations=annotations)

    metadata = await group_of(
        make_pod("p", clique_set, labels={"grove.io/podgang": "gang"}), clique_set, gang
    )

    groups = pod_group_for(metadata, Rules.V0_17).spec.sub_groups or []
    assert [(each.name, each.parent, each.min_sub_group, each.min_member) for each in groups] == [
        ("first", None, 1, None),
        ("second", None, 1, None),
        ("third", None, None, 0),  # a subgroup without subgroups may not require any
        ("a", "first", None, 1),
        ("b", "second", None, 1),
    ]
