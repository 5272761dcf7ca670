# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Unstructured

from pkg.podgrouper import PodGrouper, new_plugins_hub
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import GroupingError
from testkit.owner_world import OwnerServer, reference, refusing

MakeObject = Callable[..., Unstructured]
MakePod = Callable[..., Pod]
MakeGrouper = Callable[[Any], PodGrouper]


async def test_the_walk_ends_at_the_owner_without_owners(
    make_object: MakeObject, make_pod: MakePod, make_grouper: MakeGrouper
) -> None:
    deployment = make_object("apps/v1", "Deployment", "web", spec={"replicas": 2})
    replica_set = make_object("apps/v1", "ReplicaSet", "web-1", deployment)
    pod = make_pod("web-1-a", replica_set)

    grouper, top, owners = await make_grouper(FakeClient(deployment, replica_set, pod)).get_pod_owners(pod)

    assert (top.gvk.kind, top["spec"]) == ("Deployment", {"replicas": 2})
    assert [owner.name for owner in owners] == ["web-1", "web"]
    assert grouper.name == "Deployment Grouper"


async def test_a_pod_without_owners_is_its_own_top_owner(
    make_pod: MakePod, make_grouper: MakeGrouper
) -> None:
    pod = make_pod("solo")

    _, top, owners = await make_grouper(FakeClient(pod)).get_pod_owners(pod)

    assert (top.gvk.kind, top.name, owners) == ("Pod", "solo", [])


@pytest.mark.parametrize(
    ("refused", "top_kind", "count"), [("Deployment", "ReplicaSet", 1), ("ReplicaSet", "Pod", 0)]
)
async def test_an_owner_that_may_not_be_read_ends_the_walk_below_it(
    make_object: MakeObject,
    make_pod: MakePod,
    make_grouper: MakeGrouper,
    refused: str,
    top_kind: str,
    count: int,
) -> None:
    deployment = make_object("apps/v1", "Deployment", "web")
    replica_set = make_object("apps/v1", "ReplicaSet", "web-1", deployment)
    pod = make_pod("web-1-a", replica_set)
    client = refusing(FakeClient(deployment, replica_set, pod), refused)

    _, top, owners = await make_grouper(client).get_pod_owners(pod)

    assert (top.gvk.kind, len(owners)) == (top_kind, count)


async def test_owners_that_own_each_other_are_an_error_and_no_endless_walk(
    make_object: MakeObject, make_pod: MakePod, make_grouper: MakeGrouper
) -> None:
    first = make_object("example.com/v1", "Widget", "first")
    second = make_object("example.com/v1", "Gadget", "second", first)
    first = make_object("example.com/v1", "Widget", "first", second)
    pod = make_pod("p", first)

    with pytest.raises(GroupingError, match="found Widget <first in namespace team-a> among its own owners"):
        await make_grouper(FakeClient(first, second, pod)).get_pod_owners(pod)


async def test_an_owner_of_the_same_name_made_anew_is_not_the_owner(
    make_object: MakeObject, make_pod: MakePod, make_grouper: MakeGrouper
) -> None:
    pod = make_pod("p", make_object("apps/v1", "ReplicaSet", "rs"))
    anew = make_object("apps/v1", "ReplicaSet", "rs", uid="another")

    with pytest.raises(GroupingError) as caught:
        await make_grouper(FakeClient(anew, pod)).get_pod_owners(pod)

    assert str(caught.value) == (
        "failed to find ReplicaSet: <team-a/rs>, uid: <uid-rs>: Owner resource with uid uid-rs not found"
    )


async def test_an_owner_that_is_replaced_between_its_two_reads_is_not_the_owner(
    cluster: OwnerServer, owners: OwnerCache, make_object: MakeObject, make_pod: MakePod
) -> None:
    before = make_object("batch/v1", "Job", "j", resourceVersion="7")
    await cluster.put(before)
    await owners.metadata(reference(before), "team-a")
    after = make_object("batch/v1", "Job", "j", resourceVersion="8")
    after.metadata.uid = "another"
    await cluster.put(after, reported=False)

    with pytest.raises(GroupingError, match=r"uid: <uid-j>: Owner resource with uid uid-j not found"):
        await PodGrouper(owners, new_plugins_hub(owners, found=[])).get_pod_owners(make_pod("p", before))


async def test_an_owner_with_several_owners_is_an_error(
    make_object: MakeObject, make_pod: MakePod, make_grouper: MakeGrouper
) -> None:
    owners = [make_object("apps/v1", "Deployment", name) for name in ("a", "b")]
    replica_set = make_object("apps/v1", "ReplicaSet", "rs", *owners)
    pod = make_pod("p", replica_set)

    with pytest.raises(GroupingError) as caught:
        await make_grouper(FakeClient(*owners, replica_set, pod)).get_pod_owners(pod)

    assert str(caught.value) == (
        "found ReplicaSet <rs in namespace team-a> with multiple owners: "
        "[{apps/v1 Deployment a uid-a <nil> <nil>} {apps/v1 Deployment b uid-b <nil> <nil>}]"
    )
