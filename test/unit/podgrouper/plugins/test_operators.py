# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The group requires the pods that the operator of the workload creates together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkg.podgrouper import Rules
from pkg.podgrouper.podgroup import SubGroupMetadata
from testkit.grouping import group_of, make_object, make_pod, sub_group_of

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


SPECS = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
DELAYED = {"launcherCreationPolicy": "WaitForWorkersReady", **SPECS}
LAUNCHER = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/job-role": "launcher"}


async def test_a_launcher_that_is_being_deleted_does_not_count() -> None:
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=DELAYED)
    leaving = make_pod("l", labels=LAUNCHER, deletionTimestamp="2001-01-01T00:00:00Z", finalizers=["f"])

    assert (await group_of(make_pod("w", job), job, leaving)).min_available == 2


@pytest.mark.parametrize(("phase", "needed"), [("Running", 3), ("Failed", 2), ("Succeeded", 2)])
async def test_a_launcher_that_has_ended_does_not_count(phase: str, needed: int) -> None:
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=DELAYED)
    launcher = make_pod("l", labels=LAUNCHER)
    launcher.status.phase = phase

    assert (await group_of(make_pod("w", job), job, launcher)).min_available == needed


LEADER, POLICY_TYPE = "leaderworkerset.sigs.k8s.io/worker-index", "subGroupPolicyType"


@pytest.mark.parametrize(("worker", "needed"), [("0", 1), ("00", 3)])
async def test_while_the_leader_gets_ready_only_index_0_is_the_leader(worker: str, needed: int) -> None:
    spec = {"leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
    pod = make_pod("p", lws, labels={"leaderworkerset.sigs.k8s.io/worker-index": worker})

    assert (await group_of(pod, lws)).min_available == needed


def _segmented(size: int, policy: str, **spec: Any) -> Any:
    template = {"size": size, "subGroupPolicy": {"subGroupSize": 2, POLICY_TYPE: policy}}
    spec = {"leaderWorkerTemplate": template, **spec}
    return make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("policy", ["LeaderWorker", "LeaderExcluded"])
@pytest.mark.parametrize("size", [3, 5])
async def test_the_subgroups_require_no_more_pods_than_the_replica_has(
    size: int, policy: str, rules: Rules
) -> None:
    lws = _segmented(size, policy)

    metadata = await group_of(make_pod("p", lws, labels={LEADER: "0"}), lws, rules=rules)

    parents = {each.parent for each in metadata.sub_groups}
    leaves = [each for each in metadata.sub_groups if each.name not in parents]
    assert sum(each.min_available for each in leaves) == metadata.min_available == size
    assert all(each.min_available <= size for each in metadata.sub_groups)


@pytest.mark.parametrize("policy", ["LeaderWorker", "LeaderExcluded"])
async def test_a_leader_that_gets_ready_alone_has_no_segments_yet(policy: str) -> None:
    lws = _segmented(5, policy, startupPolicy="LeaderReady")

    alone = await group_of(make_pod("p", lws, labels={LEADER: "0"}), lws)
    bound = await group_of(make_pod("p", lws, labels={LEADER: "0"}, spec={"nodeName": "n"}), lws)

    assert [(each.name, each.min_available) for each in alone.sub_groups] == [("leader", 1)]
    assert sub_group_of(alone) == "leader"
    assert sub_group_of(bound) == "leader"
    assert bound.min_available == 5


async def test_a_replica_keeps_its_size_until_it_is_created_again() -> None:
    spec = {"leaderWorkerTemplate": {"size": 8}}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
    annotations = {"leaderworkerset.sigs.k8s.io/size": "4"}

    metadata = await group_of(make_pod("p", lws, labels={LEADER: "1"}, annotations=annotations), lws)

    assert metadata.min_available == 4


SubGroups = Callable[..., Awaitable[list[SubGroupMetadata]]]


@pytest.fixture
def sub_groups_of() -> SubGroups:
    """Return a function that returns the subgroups of a job whose pod asks for segments of ``size`` workers."""

    async def sub_groups_of(workers: int, size: str, rules: Rules = Rules.V0_13) -> list[SubGroupMetadata]:
        spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
        job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)
        labels = {
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "0",
        }
        pod = make_pod("p", job, labels=labels, annotations={"kai.scheduler/segment-size": size})
        found: list[SubGroupMetadata] = (await group_of(pod, job, rules=rules)).sub_groups
        return found

    return sub_groups_of


async def test_a_negative_size_on_the_pod_makes_no_segments(sub_groups_of: SubGroups) -> None:
    assert [each.name for each in await sub_groups_of(4, "-2")] == ["worker"]


@pytest.mark.parametrize(("size", "needed"), [("2", 2), ("4", 1), ("-1", -3), ("-2", None)])
async def test_the_workers_require_the_number_of_segments_even_a_negative_one(
    size: str, needed: int | None, sub_groups_of: SubGroups
) -> None:
    """The API server refuses a group with a negative number; upstream sends it, too."""
    workers = (await sub_groups_of(3, size, Rules.V0_17))[0]

    assert (workers.name, workers.min_sub_group) == ("worker", needed)


async def test_fewer_pods_than_masters_require_no_workers() -> None:
    spec = {
        "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 4}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 0}},
    }
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)

    metadata = await group_of(make_pod("p", job), job)

    assert metadata.min_available == 0
    assert [each.min_available for each in metadata.sub_groups] == [1, 0]


async def test_a_negative_number_of_masters_does_not_require_more_workers() -> None:
    spec = {
        "pytorchReplicaSpecs": {"Master": {"replicas": -5}, "Worker": {"replicas": 2}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
    }
    job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)

    assert [each.min_available for each in (await group_of(make_pod("p", job), job)).sub_groups] == [2]
