# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

GroupRay = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_ray(make_object: Any, make_pod: Any, group: Any) -> GroupRay:
    async def group_ray(*groups: Any, label: str = "headgroup", others: Any = (), **spec: Any) -> Metadata:
        cluster = make_object("ray.io/v1", "RayCluster", "c", spec={"workerGroupSpecs": list(groups), **spec})
        metadata: Metadata = await group(
            make_pod("p", cluster, labels={"ray.io/group": label}), cluster, *others
        )
        return metadata

    return group_ray


async def test_a_cluster_needs_its_head_and_the_least_of_each_group(
    group_ray: GroupRay, sub_groups: Any
) -> None:
    metadata = await group_ray(
        {"groupName": "cpu", "replicas": 5, "minReplicas": 2},
        {"groupName": "tpu", "replicas": 3, "numOfHosts": 4},
        {"replicas": 1},
        {"groupName": "idle", "replicas": 0},
        {"groupName": "off", "suspended": True, "replicas": "x"},
        label="tpu",
    )

    assert metadata.min_available == 1 + 2 + 12 + 1
    assert sub_groups(metadata) == {
        "headgroup": (1, None, []),
        "cpu": (2, None, []),
        "tpu": (12, None, ["p"]),
        "worker-group-2": (1, None, []),
    }


async def test_a_group_of_an_older_release_stays_without_subgroups(
    group_ray: GroupRay, make_pod_group: Any
) -> None:
    old = make_pod_group("pg-c-uid-c", minMember=1)
    new = make_pod_group("pg-c-uid-c", subGroups=[{"name": "headgroup", "minMember": 1}])

    assert (await group_ray({"replicas": 2}, others=[old])).sub_groups == []
    assert len((await group_ray({"replicas": 2}, others=[new])).sub_groups) == 2


async def test_the_label_of_ray_names_the_priority_class(make_object: Any, make_pod: Any, group: Any) -> None:
    cluster = make_object("ray.io/v1", "RayCluster", "c", labels={"ray.io/priority-class-name": "gold"})

    assert (await group(make_pod("p", cluster), cluster)).priority_class_name == "gold"


STATUSES: list[Any] = [
    ("RayJob", {"rayClusterName": "c"}),
    ("RayService", {"activeServiceStatus": {"rayClusterName": "c"}}),
    ("RayService", {"pendingServiceStatus": {"rayClusterName": "c"}}),
]


def _with_status(owner: Unstructured, status: Any) -> Unstructured:
    owner["status"] = status
    return owner


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
@pytest.mark.parametrize(("kind", "status"), STATUSES)
async def test_jobs_and_services_are_sized_by_their_cluster(
    version: str, kind: str, status: Any, make_object: Any, make_pod: Any, group: Any
) -> None:
    owner = _with_status(make_object(f"ray.io/{version}", kind, "o"), status)
    cluster = make_object(
        f"ray.io/{version}", "RayCluster", "c", owner, spec={"workerGroupSpecs": [{"replicas": 3}]}
    )

    metadata = await group(make_pod("p", cluster), owner, cluster)

    assert (metadata.name, metadata.min_available) == ("pg-o-uid-o", 4)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("RayJob", {}),
        ("RayJob", {"rayClusterName": ""}),
        (
            "RayService",
            {"activeServiceStatus": {"rayClusterName": ""}, "pendingServiceStatus": {"rayClusterName": "c"}},
        ),
    ],
)
async def test_an_owner_must_name_its_cluster(
    kind: str, status: Any, make_object: Any, make_pod: Any, group: Any
) -> None:
    owner = _with_status(make_object("ray.io/v1", kind, "o"), status)

    with pytest.raises(GroupingError, match=f"failed to extract rayClusterName for team-a/o of kind {kind}"):
        await group(make_pod("p", owner), owner)


async def test_a_cluster_that_is_gone_is_told_as_such(make_object: Any, make_pod: Any, group: Any) -> None:
    owner = _with_status(make_object("ray.io/v1", "RayJob", "o"), {"rayClusterName": "gone"})

    with pytest.raises(NotFoundError):
        await group(make_pod("p", owner), owner)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("x", r"spec\.workerGroupSpecs\[0\] is no map: x"),
        ({"replicas": 1, "minReplicas": 2}, "Given 1 replicas and 2 minReplicas. .* for group number 0"),
        ({"replicas": "1"}, r"\.replicas accessor error"),
        ({"replicas": 1, "minReplicas": "1"}, r"\.minReplicas accessor error"),
        ({"replicas": 1, "numOfHosts": "1"}, r"\.numOfHosts accessor error"),
        ({"suspended": "yes"}, r"\.suspended accessor error"),
    ],
)
async def test_what_is_refused(spec: Any, message: str, group_ray: GroupRay) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_ray(spec)


async def test_a_product_beyond_64_bits_runs_over(group_ray: GroupRay) -> None:
    assert (await group_ray({"replicas": 2**62, "numOfHosts": 4})).min_available == 1
