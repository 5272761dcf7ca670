# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient

from pkg.podgrouper import PodGrouper, Rules, new_plugins_hub
from pkg.podgrouper.ownercache import OwnerCache
from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import OwnerServer, group_of, make_object, make_pod, pod_grouper, reference


async def test_owners_that_own_each_other_are_an_error_and_no_endless_walk() -> None:
    first = make_object("example.com/v1", "Widget", "first")
    second = make_object("example.com/v1", "Gadget", "second", first)
    first = make_object("example.com/v1", "Widget", "first", second)
    pod = make_pod("p", first)

    with pytest.raises(GroupingError, match="found Widget <first in namespace team-a> among its own owners"):
        await pod_grouper(FakeClient(first, second, pod)).get_pod_owners(pod)


async def test_a_pod_may_have_64_owners_above_each_other() -> None:
    chain = [make_object("example.com/v1", "Widget", "w")]
    for number in range(64):
        chain.append(make_object("example.com/v1", "Widget", f"w{number}", chain[-1]))
    grouper = pod_grouper(FakeClient(*chain))

    assert len((await grouper.get_pod_owners(make_pod("p", chain[-2]))).owners) == 64
    with pytest.raises(GroupingError, match="pod team-a/p has a chain of more than 64 owners"):
        await grouper.get_pod_owners(make_pod("p", chain[-1]))


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


@pytest.mark.parametrize(
    ("rules", "name"), [(Rules.V0_13, "pg-p-uid-p"), (Rules.V0_17, "pg-graph-uid-graph")]
)
async def test_a_dynamo_graph_within_a_wrapper_is_skipped_by_the_rules_of_one_version_of_it(
    rules: Rules, name: str
) -> None:
    workload = make_object("run.ai/v1", "InferenceWorkload", "w")
    within = make_object("nvidia.com/v1alpha1", "DynamoGraphDeployment", "graph", workload)
    alone = make_object("nvidia.com/v1alpha1", "DynamoGraphDeployment", "alone")

    assert (await group_of(make_pod("p", within), workload, within, rules=rules)).name == name
    assert (await group_of(make_pod("p", alone), alone, rules=rules)).name == "pg-p-uid-p"


async def test_an_owner_below_that_cannot_be_read_is_named() -> None:
    train_job = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj")
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", train_job)
    grouper = new_plugins_hub(FakeClient(), found=[]).grouper_for(train_job.gvk)

    with pytest.raises(GroupingError, match=r'^failed to get last owner: jobsets\S* "js" not found$'):
        await grouper.get_pod_group_metadata(train_job, make_pod("p", job_set), job_set, train_job)
    with pytest.raises(GroupingError, match="no owner of pod team-a/p to skip"):
        await grouper.get_pod_group_metadata(train_job, make_pod("p"))


async def test_the_owner_below_is_not_another_of_its_name() -> None:
    train_job = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj")
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", train_job)
    job = make_object("batch/v1", "Job", "j", job_set)
    replaced = job_set.deep_copy()
    replaced.metadata.uid = "another"
    grouper = new_plugins_hub(FakeClient(replaced), found=[]).grouper_for(train_job.gvk)

    with pytest.raises(GroupingError, match="uid uid-js of js not found"):
        await grouper.get_pod_group_metadata(train_job, make_pod("p", job), job, job_set, train_job)
