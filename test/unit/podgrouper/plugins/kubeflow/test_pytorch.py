# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkg.podgrouper import Rules
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

GroupPyTorch = Callable[..., Awaitable[Metadata]]
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
SIZE = "kai.scheduler/segment-size"


@pytest.fixture
def group_pytorch(make_object: Any, make_pod: Any, group: Any) -> GroupPyTorch:
    async def group_pytorch(
        masters: Any,
        workers: Any,
        *,
        role: str = "worker",
        index: str | None = "0",
        size: str | None = None,
        template: Any = None,
        rules: Rules = Rules.V0_13,
        **spec: Any,
    ) -> Metadata:
        specs: dict[str, Any] = {}
        if masters is not None:
            specs["Master"] = {"replicas": masters}
        if workers is not None:
            specs["Worker"] = {
                "replicas": workers,
                **({"template": template} if template is not None else {}),
            }
        job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec={"pytorchReplicaSpecs": specs, **spec})
        labels = {TYPE: role, **({INDEX: index} if index is not None else {})}
        pod = make_pod("p", job, labels=labels, annotations={SIZE: size} if size is not None else None)
        metadata: Metadata = await group(pod, job, rules=rules)
        return metadata

    return group_pytorch


def _policy(least: Any) -> dict[str, Any]:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": least}}}


async def test_master_and_workers_are_subgroups(group_pytorch: GroupPyTorch, sub_groups: Any) -> None:
    assert sub_groups(await group_pytorch(1, 3)) == {"master": (1, None, []), "worker": (3, None, ["p"])}
    assert sub_groups(await group_pytorch(1, None, role="master")) == {"master": (1, None, ["p"])}
    assert sub_groups(await group_pytorch(None, 2, role="")) == {"worker": (2, None, [])}


@pytest.mark.parametrize(
    ("more", "needed", "workers"),
    [
        ({"elasticPolicy": {"minReplicas": 2}}, 2, 1),
        ({"elasticPolicy": {"minReplicas": 2}, **_policy(3)}, 3, 2),
        ({"elasticPolicy": {"minReplicas": "2"}}, 5, 4),
        (_policy(0), 0, 0),
    ],
)
async def test_policies_say_how_many_are_needed(
    more: dict[str, Any], needed: int, workers: int, group_pytorch: GroupPyTorch, sub_groups: Any
) -> None:
    metadata = await group_pytorch(1, 4, **more)

    assert (metadata.min_available, sub_groups(metadata)["worker"][0]) == (needed, workers)


async def test_workers_are_cut_into_segments(group_pytorch: GroupPyTorch, sub_groups: Any) -> None:
    assert sub_groups(await group_pytorch(1, 5, size="2", index="4")) == {
        "master": (1, None, []),
        "worker": (5, None, []),
        "worker-0": (2, "worker", []),
        "worker-1": (2, "worker", []),
        "worker-2": (1, "worker", ["p"]),
    }


async def test_only_workers_are_in_a_segment(group_pytorch: GroupPyTorch, sub_groups: Any) -> None:
    groups = sub_groups(await group_pytorch(1, 4, size="2", role="master", index=None))

    assert [name for name, (_, _, pods) in groups.items() if pods] == ["master"]


async def test_the_pods_size_counts_before_the_templates(group_pytorch: GroupPyTorch) -> None:
    template = {"metadata": {"annotations": {SIZE: "2"}}}

    for size, segments in (("4", 1), ("", 2), (None, 2)):
        metadata = await group_pytorch(None, 4, size=size, template=template)
        assert len(metadata.sub_groups) == 1 + segments


async def test_a_negative_size_on_the_pod_makes_no_segments(
    group_pytorch: GroupPyTorch, sub_groups: Any
) -> None:
    assert list(sub_groups(await group_pytorch(None, 4, size="-2"))) == ["worker"]


async def test_segments_are_placed_as_pod_and_template_say(group_pytorch: GroupPyTorch) -> None:
    annotations = {
        SIZE: "2",
        "kai.scheduler/topology": "t",
        "kai.scheduler/segment-topology-preferred-placement": "host",
    }

    metadata = await group_pytorch(None, 4, template={"metadata": {"annotations": annotations}})

    constraint = metadata.sub_groups[1].topology_constraints
    assert constraint is not None
    assert (constraint.topology, constraint.preferred_topology_level) == ("t", "host")


@pytest.mark.parametrize(
    ("workers", "more", "message"),
    [
        (4, {"size": "two"}, 'invalid segment size two on pod team-a/p, err: strconv.Atoi: parsing "two"'),
        (4, {"size": "0"}, "segment size on pod team-a/p must not be 0"),
        (4, {"size": "2", "index": None}, "replica index label not found on pod team-a/p"),
        (4, {"size": "2", "index": "x"}, 'invalid replica index x, err: strconv.Atoi: parsing "x"'),
        (2**40, {"size": "1"}, "1099511627776 segments are too many for a pod group"),
        (
            "4",
            _policy(4),
            r"failed to get replicas for worker groups. Err: \.Worker\.replicas accessor error",
        ),
        (
            4,
            {"template": {"metadata": {"annotations": {SIZE: "0"}}}},
            "segment size 0 on worker podTemplate needs to be a positive integer",
        ),
        (
            4,
            {"template": {"metadata": {"annotations": {SIZE: "x"}}}},
            "invalid segment size x on worker podTemplate, err: ",
        ),
        (4, {"template": {"metadata": []}}, "failed to get segment size from worker podTemplate: "),
    ],
)
async def test_what_is_refused(
    workers: Any, more: dict[str, Any], message: str, group_pytorch: GroupPyTorch
) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_pytorch(None, workers, **more)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"pytorchReplicaSpecs": []}, r"failed to get pytorchReplicaSpecs from PyTorchJob team-a/j\. Err: "),
        (
            {"pytorchReplicaSpecs": {"Master": []}},
            r"failed to get replicas from pytorchReplicaSpecs\[Master\] in ",
        ),
        ({}, "pytorchReplicaSpecs not found in PyTorchJob team-a/j"),
    ],
)
async def test_with_a_policy_the_replica_specs_are_looked_at_for_subgroups_only(
    spec: dict[str, Any], message: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec={**_policy(1), **spec})

    with pytest.raises(GroupingError, match=message):
        await group(make_pod("p", job), job)


@pytest.mark.parametrize(("size", "needed"), [("2", 2), ("4", 1), ("-1", -3), ("-2", None)])
async def test_the_workers_require_the_number_of_segments_even_a_negative_one(
    size: str, needed: int | None, group_pytorch: GroupPyTorch
) -> None:
    """The API server refuses a group with a negative number; upstream sends it, too."""
    workers = (await group_pytorch(None, 3, size=size, rules=Rules.V0_17)).sub_groups[0]

    assert (workers.name, workers.min_sub_group) == ("worker", needed)
