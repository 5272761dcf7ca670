# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient

from pkg.podgrouper import Rules, new_plugins_hub
from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import group_of, make_object, make_pod


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
