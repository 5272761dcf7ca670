# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient

from pkg.podgrouper import PodGrouper, new_plugins_hub
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import OwnerServer, make_object, make_pod, pod_grouper, reference


async def test_owners_that_own_each_other_are_an_error_and_no_endless_walk() -> None:
    first = make_object("example.com/v1", "Widget", "first")
    second = make_object("example.com/v1", "Gadget", "second", first)
    first = make_object("example.com/v1", "Widget", "first", second)
    pod = make_pod("p", first)

    with pytest.raises(GroupingError, match="found Widget <first in namespace team-a> among its own owners"):
        await pod_grouper(FakeClient(first, second, pod)).get_pod_owners(pod)


async def test_of_several_owners_of_a_pod_the_first_one_counts_as_in_upstream() -> None:
    first, second = make_object("batch/v1", "Job", "first"), make_object("batch/v1", "Job", "second")
    pod, controls = make_pod("p"), reference(second)
    controls.controller = True
    pod.metadata.owner_references = [reference(first), controls]

    found = await pod_grouper(FakeClient(first, second, pod)).get_pod_owners(pod)

    assert [each.name for each in found.owners] == ["first"]


async def test_of_several_owners_of_an_owner_the_controller_counts() -> None:
    """For example, an Application references all its objects, so that they are deleted with it."""
    app = make_object("app.k8s.io/v1beta1", "Application", "app")
    top = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "t")
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js")
    of_app, of_top = reference(app), reference(top)
    job_set.metadata.owner_references = [of_app, of_top]
    pod = make_pod("p", job_set)
    grouper = pod_grouper(FakeClient(app, top, job_set, pod))

    with pytest.raises(GroupingError, match="found JobSet <js in namespace team-a> with multiple owners"):
        await grouper.get_pod_owners(pod)

    of_top.controller = True
    found = await pod_grouper(FakeClient(app, top, job_set, pod)).get_pod_owners(pod)
    assert [each.name for each in found.owners] == ["js", "t"]


async def test_an_owner_that_is_replaced_between_its_two_reads_is_not_the_owner(
    cluster: OwnerServer, owners: OwnerCache
) -> None:
    before = make_object("batch/v1", "Job", "j", resourceVersion="7")
    await cluster.put(before)
    await owners.metadata(reference(before), "team-a")
    after = make_object("batch/v1", "Job", "j", resourceVersion="8")
    after.metadata.uid = "another"
    await cluster.put(after, reported=False)

    with pytest.raises(GroupingError, match=r"uid: <uid-j>: Owner resource with uid uid-j not found"):
        await PodGrouper(owners, new_plugins_hub(owners, found=[])).get_pod_owners(make_pod("p", before))
