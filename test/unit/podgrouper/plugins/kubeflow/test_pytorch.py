# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pkg.podgrouper import Rules
from pkg.podgrouper.podgroup import SubGroupMetadata
from testkit.grouping import group_of, make_object, make_pod

SubGroups = Callable[..., Awaitable[list[SubGroupMetadata]]]


@pytest.fixture
def sub_groups_of() -> SubGroups:
    """Return a function that returns the subgroups of a job whose pod asks for segments of ``size`` workers."""

    async def sub_groups_of(workers: int, size: str, rules: Rules = Rules.V0_13) -> list[SubGroupMetadata]:
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
        job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)
        labels = {
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "0",
        }
        pod = make_pod("p", job, labels=labels, annotations={"kai.scheduler/segment-size": size})
        found: list[SubGroupMetadata] = (await group_of(pod, job, rules=rules)).sub_groups
        return found

    return sub_groups_of


async def test_a_negative_size_on_the_pod_makes_no_segments(sub_groups_of: SubGroups) -> None:
    assert [each.name for each in await sub_groups_of(4, "-2")] == ["worker"]


@pytest.mark.parametrize(("size", "needed"), [("2", 2), ("4", 1), ("-1", -3), ("-2", None)])
async def test_the_workers_require_the_number_of_segments_even_a_negative_one(
    size: str, needed: int | None, sub_groups_of: SubGroups
) -> None:
    """The API server refuses a group with a negative number; upstream sends it, too."""
    workers = (await sub_groups_of(3, size, Rules.V0_17))[0]

    assert (workers.name, workers.min_sub_group) == ("worker", needed)


async def test_fewer_pods_than_masters_require_no_workers() -> None:
    spec = {
        "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 4}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 0}},
    }
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)

    metadata = await group_of(make_pod("p", job), job)

    assert metadata.min_available == 0
    assert [each.min_available for each in metadata.sub_groups] == [1, 0]


async def test_a_negative_number_of_masters_does_not_require_more_workers() -> None:
    spec = {
        "pytorchReplicaSpecs": {"Master": {"replicas": -5}, "Worker": {"replicas": 2}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
    }
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)

    assert [each.min_available for each in (await group_of(make_pod("p", job), job)).sub_groups] == [2]
