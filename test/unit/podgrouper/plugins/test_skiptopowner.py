# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient

from pkg.podgrouper import Rules, new_plugins_hub
from pkg.podgrouper.plugins import GroupingError


async def test_a_train_job_is_grouped_as_its_job_set_with_its_own_labels(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    train_job = make_object(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        "tj",
        labels={"kai.scheduler/queue": "q", "both": "train-job"},
        annotations={"kai.scheduler/topology": "t"},
    )
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", train_job, labels={"both": "job-set"})
    job = make_object("batch/v1", "Job", "j", job_set)
    pod = make_pod("p", job, labels={"jobset.sigs.k8s.io/replicatedjob-name": "node"})

    metadata = await group(pod, train_job, job_set, job)

    assert metadata.name == "pg-js-uid-js-node"
    assert metadata.owner.kind == "JobSet"
    assert metadata.labels == {"kai.scheduler/queue": "q", "both": "job-set"}
    assert (metadata.queue, metadata.topology) == ("q", "t")


@pytest.mark.parametrize("version", ["v1", "v2alpha1"])
async def test_a_pod_right_below_a_workload_of_any_version_is_its_own_group(
    version: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    workload = make_object(f"run.ai/{version}", "TrainingWorkload", "w", labels={"a": "b"})

    metadata = await group(make_pod("p", workload), workload)

    assert (metadata.name, metadata.labels) == ("pg-p-uid-p", {"a": "b"})


async def test_wrappers_within_wrappers_are_skipped_by_their_very_version_only(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    outer = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "outer")
    workflow = make_object("argoproj.io/v1alpha1", "Workflow", "inner", outer)
    workload = make_object("run.ai/v1", "TrainingWorkload", "inner", outer)

    for inner, name in ((workflow, "pg-p-uid-p"), (workload, "pg-inner-uid-inner")):
        assert (await group(make_pod("p", inner), outer, inner)).name == name


@pytest.mark.parametrize(
    ("rules", "name"), [(Rules.V0_13, "pg-p-uid-p"), (Rules.V0_17, "pg-graph-uid-graph")]
)
async def test_a_dynamo_graph_within_a_wrapper_is_skipped_by_the_rules_of_one_version_of_it(
    rules: Rules, name: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    workload = make_object("run.ai/v1", "InferenceWorkload", "w")
    within = make_object("nvidia.com/v1alpha1", "DynamoGraphDeployment", "graph", workload)
    alone = make_object("nvidia.com/v1alpha1", "DynamoGraphDeployment", "alone")

    assert (await group(make_pod("p", within), workload, within, rules=rules)).name == name
    assert (await group(make_pod("p", alone), alone, rules=rules)).name == "pg-p-uid-p"


async def test_the_priority_class_is_that_of_the_owners_below(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    gold = make_object("scheduling.k8s.io/v1", "PriorityClass", "gold", namespace="")
    workflow = make_object("argoproj.io/v1alpha1", "Workflow", "w", labels={"priorityClassName": "gold"})
    stateful_set = make_object("apps/v1", "StatefulSet", "s", workflow)

    metadata = await group(make_pod("p", stateful_set), gold, workflow, stateful_set)

    # The default grouper reads the stored owners, and the stored StatefulSet does not have the label.
    assert metadata.labels == {"priorityClassName": "gold"}
    assert metadata.priority_class_name == "train"


async def test_an_owner_below_that_cannot_be_read_is_named(make_object: Any, make_pod: Any) -> None:
    train_job = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj")
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", train_job)
    grouper = new_plugins_hub(FakeClient(), found=[]).grouper_for(train_job.gvk)

    with pytest.raises(GroupingError, match=r'^failed to get last owner: jobsets\S* "js" not found$'):
        await grouper.get_pod_group_metadata(train_job, make_pod("p", job_set), job_set, train_job)
    with pytest.raises(GroupingError, match="no owner of pod team-a/p to skip"):
        await grouper.get_pod_group_metadata(train_job, make_pod("p"))


async def test_the_owner_below_is_not_another_of_its_name(make_object: Any, make_pod: Any) -> None:
    train_job = make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "tj")
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", train_job)
    job = make_object("batch/v1", "Job", "j", job_set)
    replaced = job_set.deep_copy()
    replaced.metadata.uid = "another"
    grouper = new_plugins_hub(FakeClient(replaced), found=[]).grouper_for(train_job.gvk)

    with pytest.raises(GroupingError, match="uid uid-js of js not found"):
        await grouper.get_pod_group_metadata(train_job, make_pod("p", job), job, job_set, train_job)
