# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from controller_runtime.machinery import Object

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata
from testkit.grouping import group_of, make_object, make_pod, make_pod_group

LABELS = {"serving.knative.dev/revision": "r"}
GroupKnative = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_knative() -> GroupKnative:
    async def group_knative(*others: Object) -> Metadata:
        service = make_object("serving.knative.dev/v1", "Service", "s")
        revision = make_object("serving.knative.dev/v1", "Revision", "r")
        metadata: Metadata = await group_of(make_pod("p", service, labels=LABELS), service, revision, *others)
        return metadata

    return group_knative


async def test_a_single_group_without_an_owner_is_refused(group_knative: GroupKnative) -> None:
    other = make_pod("other", labels=LABELS, annotations={"pod-group-name": "g"})

    with pytest.raises(
        GroupingError,
        match="unable to determine gang behavior for revision team-a/r and pod team-a/p: podgroup g has no owner",
    ):
        await group_knative(other, make_pod_group("g"))


async def test_a_single_group_that_is_gone_does_not_count(group_knative: GroupKnative) -> None:
    other = make_pod("other", labels=LABELS, annotations={"pod-group-name": "g"})

    assert (await group_knative(other)).name == "pg-r-uid-r"


@pytest.mark.parametrize(
    ("phases", "name"),
    [
        pytest.param(["Running", "Pending"], "pg-p-uid-p", id="none has ended"),
        pytest.param(["Running", "Running", "Failed"], "pg-p-uid-p", id="one of three has ended"),
        pytest.param(["Failed", "Succeeded"], "pg-r-uid-r", id="all have ended"),
    ],
)
async def test_pods_that_have_ended_do_not_count(
    phases: list[str], name: str, group_knative: GroupKnative
) -> None:
    others = []
    for index, phase in enumerate(phases):
        pod = make_pod(f"p{index}", labels=LABELS, annotations={"pod-group-name": f"g{index}"})
        pod.status.phase = phase
        others.append(pod)

    assert (await group_knative(*others)).name == name


@pytest.mark.parametrize(
    ("annotation", "pods"),
    [
        pytest.param({"autoscaling.knative.dev/min-scale": "3"}, 3, id="the name that KAI reads"),
        pytest.param(
            {"autoscaling.knative.dev/minScale": "3"}, 1, id="Knative's former name, which KAI ignores"
        ),
        pytest.param({"autoscaling.knative.dev/min-scale": "3.0"}, 1, id="a fraction"),
        pytest.param({"autoscaling.knative.dev/min-scale": ""}, 1, id="empty"),
    ],
)
async def test_a_revision_requires_its_minimum_scale_or_one_pod(
    annotation: dict[str, str], pods: int
) -> None:
    service = make_object("serving.knative.dev/v1", "Service", "s")
    revision = make_object("serving.knative.dev/v1", "Revision", "r", annotations=annotation)

    assert (await group_of(make_pod("p", service, labels=LABELS), service, revision)).min_available == pods
