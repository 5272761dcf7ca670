# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The group requires the pods that the operator of the workload creates together."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import Rules
from testkit.grouping import group_of, make_object, make_pod

RULES = pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])


@RULES
@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({}, 5),
        ({"elasticPolicy": {"minReplicas": 2}}, 2),
        ({"elasticPolicy": {"minReplicas": 9}}, 5),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}, "elasticPolicy": {"minReplicas": 2}}, 3),
    ],
)
async def test_a_paddle_job_requires_its_replicas(more: Any, needed: int, rules: Rules) -> None:
    spec = {"paddleReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 4}}, **more}
    job = make_object("kubeflow.org/v1", "PaddleJob", "j", spec=spec)

    metadata = await group_of(make_pod("p", job), job, rules=rules)

    assert (metadata.name, metadata.min_available) == ("pg-j-uid-j", needed)


@RULES
@pytest.mark.parametrize(
    ("kind", "field", "replicas", "needed"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs", {"Master": None, "Worker": 2}, 3),
        ("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": None}, 2),
        ("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 0}, 1),
        ("TFJob", "tfReplicaSpecs", {"Chief": None, "PS": 0, "Worker": 3}, 4),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1}, 1),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": None, "Worker": None}, 2),
        ("JAXJob", "jaxReplicaSpecs", {"Worker": None}, 1),
        ("PaddleJob", "paddleReplicaSpecs", {"Master": 0, "Worker": None}, 1),
        ("MPIJob", "mpiReplicaSpecs", {"Launcher": 1}, 1),
        ("MPIJob", "mpiReplicaSpecs", {"Launcher": None, "Worker": 2}, 3),
        ("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": None}, 1),
    ],
)
async def test_a_role_without_replicas_has_the_number_of_pods_that_its_operator_creates(
    kind: str, field: str, replicas: dict[str, int | None], needed: int, rules: Rules
) -> None:
    specs = {role: {} if number is None else {"replicas": number} for role, number in replicas.items()}
    job = make_object("kubeflow.org/v1", kind, "j", spec={field: specs})

    metadata = await group_of(make_pod("p", job), job, rules=rules)

    assert metadata.min_available == needed
    assert sum(each.min_available for each in metadata.sub_groups) in (0, needed)


@RULES
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs"),
        ("TFJob", "tfReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
    ],
)
async def test_a_scheduling_policy_cannot_require_more_pods_than_the_job_has(
    kind: str, field: str, rules: Rules
) -> None:
    specs = {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    spec = {field: specs, "runPolicy": {"schedulingPolicy": {"minAvailable": 9}}}
    job = make_object("kubeflow.org/v1", kind, "j", spec=spec)

    metadata = await group_of(make_pod("p", job), job, rules=rules)

    assert metadata.min_available == 3
    assert [each.min_available for each in metadata.sub_groups] in ([], [1, 2])


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"parallelism": 2}, 2),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 9}, 5),
        ({"parallelism": 0}, 0),
        ({}, 5),
    ],
)
async def test_a_job_cannot_require_more_pods_than_its_controller_creates_at_once(
    spec: Any, needed: int
) -> None:
    annotations = {"kai.scheduler/batch-min-member": "5"}
    job = make_object("batch/v1", "Job", "j", annotations=annotations, spec=spec)

    assert (await group_of(make_pod("p", job), job, rules=Rules.V0_17)).min_available == needed


@pytest.fixture
def nim() -> list[Any]:
    """Return a NIMService, the LeaderWorkerSet below it, and a StatefulSet of the latter."""
    service = make_object(
        "apps.nvidia.com/v1alpha1", "NIMService", "nim", labels={"kai.scheduler/queue": "q"}
    )
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 4}}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "nim-lws", service, spec=spec)
    return [service, lws, make_object("apps/v1", "StatefulSet", "nim-lws", lws)]


@RULES
@pytest.mark.parametrize(
    ("node", "name", "needed"), [("", "pg-nim-lws-uid-nim-lws-group-1", 4), ("n", "pg-nim-uid-nim", 1)]
)
async def test_a_replica_of_a_nim_service_on_several_nodes_is_a_group_but_running_pods_keep_theirs(
    node: str, name: str, needed: int, rules: Rules, nim: Any
) -> None:
    labels = {
        "leaderworkerset.sigs.k8s.io/group-index": "1",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    annotations = {"pod-group-name": "pg-nim-uid-nim"}
    pod = make_pod("p", nim[2], labels=labels, annotations=annotations, spec={"nodeName": node})

    metadata = await group_of(pod, *nim, rules=rules)

    assert (metadata.name, metadata.min_available, metadata.queue) == (name, needed, "q")


async def test_a_nim_service_on_one_node_keeps_its_group(nim: Any) -> None:
    deployment = make_object("apps/v1", "Deployment", "nim", nim[0])

    assert (await group_of(make_pod("p", deployment), nim[0], deployment)).name == "pg-nim-uid-nim"


@RULES
@pytest.mark.parametrize(("launchers", "needed"), [(1, 2), (0, 2), (-5, 3)])
async def test_an_mpi_job_whose_launcher_waits_requires_its_workers(
    launchers: int, needed: int, rules: Rules
) -> None:
    spec = {
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": {"replicas": launchers}, "Worker": {"replicas": 2}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
    }
    job = make_object("kubeflow.org/v2beta1", "MPIJob", "j", spec=spec)

    assert (await group_of(make_pod("p", job), job, rules=rules)).min_available == needed
