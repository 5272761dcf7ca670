# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import NotFoundError

from pkg.podgrouper import Settings
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

LABELS = {"serving.knative.dev/revision": "r"}
GroupKnative = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_knative(make_object: Any, make_pod: Any, group: Any) -> GroupKnative:
    async def group_knative(
        *others: Object, labels: Any = LABELS, options: Settings | None = None, **annotations: str
    ) -> Metadata:
        service = make_object("serving.knative.dev/v1", "Service", "s")
        revision = make_object(
            "serving.knative.dev/v1",
            "Revision",
            "r",
            annotations={f"autoscaling.knative.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
        )
        metadata: Metadata = await group(
            make_pod("p", service, labels=labels), service, revision, *others, options=options
        )
        return metadata

    return group_knative


@pytest.mark.parametrize(("scale", "needed"), [("3", 3), ("0", 0), ("two", 1), (str(2**32 + 5), 5)])
async def test_a_revision_is_a_group_of_its_least_scale(
    scale: str, needed: int, group_knative: GroupKnative
) -> None:
    metadata = await group_knative(min_scale=scale)

    assert (metadata.name, metadata.owner.kind) == ("pg-r-uid-r", "Revision")
    assert (metadata.min_available, metadata.priority_class_name) == (needed, "inference")


async def test_without_gangs_each_pod_is_a_group(group_knative: GroupKnative) -> None:
    metadata = await group_knative(min_scale="3", options=Settings(knative_gang_schedule=False))

    assert (metadata.name, metadata.owner.kind, metadata.min_available) == ("pg-p-uid-p", "Pod", 1)


@pytest.mark.parametrize(
    ("groups", "name"),
    [
        pytest.param(["a", "b"], "pg-p-uid-p", id="one group each"),
        pytest.param(["a", "a", "b"], "pg-r-uid-r", id="two share one"),
        pytest.param([], "pg-r-uid-r", id="no other pod"),
        pytest.param(["gone"], "pg-r-uid-r", id="one group, which is gone"),
    ],
)
async def test_pods_follow_what_the_pods_before_them_have(
    groups: list[str], name: str, make_pod: Any, group_knative: GroupKnative
) -> None:
    others = [
        make_pod(f"p{index}", labels=LABELS, annotations={"pod-group-name": group})
        for index, group in enumerate(groups)
    ]

    assert (await group_knative(*others)).name == name


@pytest.mark.parametrize(("kind", "name"), [("Pod", "pg-p-uid-p"), ("Revision", "pg-r-uid-r")])
async def test_of_a_single_group_the_owner_tells(
    kind: str, name: str, make_object: Any, make_pod: Any, make_pod_group: Any, group_knative: GroupKnative
) -> None:
    other = make_pod("other", labels=LABELS, annotations={"pod-group-name": "g"})

    metadata = await group_knative(other, make_pod_group("g", make_object("v1", kind, "o")))

    assert metadata.name == name


async def test_a_single_group_of_anybody_else_tells_nothing(
    make_object: Any, make_pod: Any, make_pod_group: Any, group_knative: GroupKnative
) -> None:
    other = make_pod("other", labels=LABELS, annotations={"pod-group-name": "g"})
    message = "unable to determine gang behavior for revision team-a/r and pod team-a/p: podgroup g has "

    with pytest.raises(
        GroupingError, match=message + r"unexpected owner reference: {v1 Widget o uid-o <nil> <nil>}"
    ):
        await group_knative(other, make_pod_group("g", make_object("v1", "Widget", "o")))
    with pytest.raises(GroupingError, match=f"{message}no owner references"):
        await group_knative(other, make_pod_group("g"))


async def test_a_pod_must_name_its_revision(group_knative: GroupKnative) -> None:
    with pytest.raises(GroupingError, match="revisionName not found for knative service pod team-a/p"):
        await group_knative(labels={})
    with pytest.raises(NotFoundError):
        await group_knative(labels={"serving.knative.dev/revision": "gone"})


@pytest.mark.parametrize(
    ("phases", "name"),
    [
        pytest.param(["Running", "Pending"], "pg-p-uid-p", id="none has ended"),
        pytest.param(["Running", "Running", "Failed"], "pg-p-uid-p", id="one of three has ended"),
        pytest.param(["Failed", "Succeeded"], "pg-r-uid-r", id="all have ended"),
    ],
)
async def test_pods_that_have_ended_do_not_count(
    phases: list[str], name: str, make_pod: Any, group_knative: GroupKnative
) -> None:
    others = []
    for index, phase in enumerate(phases):
        pod = make_pod(f"p{index}", labels=LABELS, annotations={"pod-group-name": f"g{index}"})
        pod.status.phase = phase
        others.append(pod)

    assert (await group_knative(*others)).name == name
