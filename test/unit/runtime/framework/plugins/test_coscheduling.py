# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import NoReturn

import pytest
from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import StatusError

from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    MLPolicy,
    PodGroupPolicy,
    Trainer,
    TrainJob,
    VolcanoPodGroupPolicySource,
)
from pkg.runtime.core.runtimeinfo import new_runtime_info
from pkg.runtime.framework.plugins.coscheduling import CoScheduling
from pkg.runtime.runtime import Info
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

COSCHEDULING = PodGroupPolicy(coscheduling=CoschedulingPodGroupPolicySource(schedule_timeout_seconds=30))
OTHERS = [
    pytest.param(None, id="no policy"),
    pytest.param(PodGroupPolicy(), id="empty policy"),
    pytest.param(PodGroupPolicy(volcano=VolcanoPodGroupPolicySource()), id="Volcano's policy"),
]


def info_of(train_job: TrainJob, policy: PodGroupPolicy | None) -> Info:
    node = make_replicated_job(
        "node", ancestor="trainer", resources=ResourceRequirements(requests={"cpu": "1500m"})
    )
    spec = make_training_runtime_spec(node, ml_policy=MLPolicy(num_nodes=3), pod_group_policy=policy)
    return new_runtime_info(train_job, spec)


def pod_group_of(train_job: TrainJob) -> PodGroup:
    return PodGroup(metadata=ObjectMeta(namespace=train_job.namespace, name=train_job.name))


async def test_the_pod_group_holds_all_pods_for_the_policys_timeout_and_belongs_to_the_job() -> None:
    train_job = make_train_job("team-a", "job", uid="u")

    (group,) = await CoScheduling(FakeClient()).build(info_of(train_job, COSCHEDULING), train_job)

    assert group.to_dict() == {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": "job",
            "namespace": "team-a",
            "ownerReferences": [
                {
                    "apiVersion": "trainer.kubeflow.org/v1alpha1",
                    "kind": "TrainJob",
                    "name": "job",
                    "uid": "u",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"minMember": 3, "minResources": {"cpu": "4500m"}, "scheduleTimeoutSeconds": 30},
    }


async def test_what_the_trainer_asks_for_is_not_counted() -> None:
    resources = ResourceRequirements(requests={"cpu": "100"})
    train_job = make_train_job("team-a", "job", trainer=Trainer(resources_per_node=resources))

    (group,) = await CoScheduling(FakeClient()).build(info_of(train_job, COSCHEDULING), train_job)

    assert group.to_dict()["spec"]["minResources"] == {"cpu": "4500m"}


@pytest.mark.parametrize(
    ("suspend", "exists", "built"),
    [
        (False, False, True),
        (True, False, True),
        (True, True, True),
        (False, True, False),
        (None, True, False),
    ],
)
async def test_a_pod_group_is_created_always_and_rewritten_only_while_its_job_is_suspended(
    suspend: bool | None, exists: bool, built: bool
) -> None:
    train_job = make_train_job("team-a", "job", suspend=suspend)
    client = FakeClient(*[pod_group_of(train_job)] if exists else [])

    objects = await CoScheduling(client).build(info_of(train_job, COSCHEDULING), train_job)

    assert bool(objects) is built


async def test_a_pod_group_that_cannot_be_read_is_no_missing_one() -> None:
    async def refuse(*_args: object) -> NoReturn:
        raise StatusError("boom", code=500, reason="InternalError")

    train_job = make_train_job("team-a", "job")
    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=refuse))

    with pytest.raises(StatusError, match="boom"):
        await CoScheduling(client).build(info_of(train_job, COSCHEDULING), train_job)


def test_every_pod_is_labelled_with_the_group() -> None:
    train_job = make_train_job("team-a", "job")
    info = info_of(train_job, COSCHEDULING)
    info.scheduler.pod_labels["other"] = "kept"

    CoScheduling(FakeClient()).enforce_pod_group_policy(info, train_job)

    assert info.scheduler.pod_labels == {"other": "kept", "scheduling.x-k8s.io/pod-group": "job"}
    assert info.scheduler.pod_annotations == {}


@pytest.mark.parametrize("policy", OTHERS)
async def test_without_a_coscheduling_policy_nothing_happens(policy: PodGroupPolicy | None) -> None:
    train_job, client = make_train_job("team-a", "job"), FakeClient()
    info = info_of(train_job, policy)
    plugin = CoScheduling(client)

    plugin.enforce_pod_group_policy(info, train_job)

    assert await plugin.build(info, train_job) == []
    assert info.scheduler.pod_labels == {}
    assert client.calls == []
