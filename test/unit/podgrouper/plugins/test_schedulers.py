# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A gang does not wait for the pods of a role that another scheduler binds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper import Rules
from pkg.podgrouper.podgroup import Metadata
from testkit.grouping import group_of, make_object, make_pod, sub_group_of

OURS: dict[str, Any] = {"spec": {"schedulerName": "kai-scheduler"}}
THEIRS: list[Any] = [
    pytest.param({"spec": {"schedulerName": "default-scheduler"}}, id="another scheduler"),
    pytest.param({"spec": {}}, id="the default scheduler"),
    pytest.param({}, id="no spec"),
    pytest.param({"spec": "text"}, id="malformed"),
]
LABEL = "training.kubeflow.org/replica-type"


def make_job_set(launcher: Any, node: Any) -> Unstructured:
    jobs = [
        {"name": "launcher", "template": {"spec": {"template": launcher}}},
        {"name": "node", "replicas": 2, "template": {"spec": {"template": node}}},
    ]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    return make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)


async def in_job_set(job_set: Unstructured, job: str, rules: Rules) -> Metadata:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": "0"}
    return await group_of(make_pod("p", job_set, labels=labels), job_set, rules=rules)


@pytest.mark.parametrize("template", THEIRS)
async def test_a_job_set_counts_only_the_jobs_of_the_pods_scheduler(template: Any) -> None:
    job_set = make_job_set(template, OURS)

    assert (await in_job_set(job_set, "node", Rules.V0_13)).min_available == 2
    tree = await in_job_set(job_set, "node", Rules.V0_17)
    assert tree.min_sub_group == 1
    assert [each.name for each in tree.sub_groups] == ["node", "node-replica-0", "node-replica-1"]


@pytest.mark.parametrize("template", THEIRS)
async def test_if_a_webhook_sets_the_scheduler_of_all_pods_all_count(template: Any) -> None:
    job_set = make_job_set(template, template)

    assert (await in_job_set(job_set, "node", Rules.V0_13)).min_available == 3
    assert (await in_job_set(job_set, "node", Rules.V0_17)).min_sub_group == 2


async def test_a_pod_whose_template_names_another_scheduler_is_grouped_without_those_that_do_not_wait() -> (
    None
):
    job_set = make_job_set({}, OURS)

    flat = await in_job_set(job_set, "launcher", Rules.V0_13)
    assert (flat.name, flat.min_available) == ("pg-js-uid-js", 2)
    tree = await in_job_set(job_set, "launcher", Rules.V0_17)
    assert tree.name == "pg-js-uid-js-launcher"
    assert [each.name for each in tree.sub_groups] == ["launcher", "launcher-replica-0"]


def make_training_job(kind: str, field: str, **more: Any) -> Unstructured:
    specs = {
        role: {"replicas": number, "template": template}
        for role, (number, template) in more.pop("roles").items()
    }
    return make_object("kubeflow.org/v1", kind, "j", spec={field: specs, **more})


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(
    ("kind", "field", "other", "more"),
    [
        ("MPIJob", "mpiReplicaSpecs", "Launcher", {}),
        ("MPIJob", "mpiReplicaSpecs", "Launcher", {"launcherCreationPolicy": "WaitForWorkersReady"}),
        ("TFJob", "tfReplicaSpecs", "Evaluator", {}),
        ("PyTorchJob", "pytorchReplicaSpecs", "Master", {}),
        ("PyTorchJob", "pytorchReplicaSpecs", "Master", {"elasticPolicy": {"minReplicas": 4}}),
    ],
)
async def test_a_training_job_counts_only_the_roles_of_the_pods_scheduler(
    kind: str, field: str, other: str, more: dict[str, Any], rules: Rules
) -> None:
    job = make_training_job(kind, field, roles={other: (1, {}), "Worker": (3, OURS)}, **more)
    metadata = await group_of(make_pod("p", job, labels={LABEL: "worker"}), job, rules=rules)

    assert metadata.min_available == 3
    assert [(each.name, each.min_available) for each in metadata.sub_groups] == (
        [("worker", 3)] if kind == "PyTorchJob" else []
    )


async def test_workers_of_a_pytorch_job_that_another_scheduler_binds_have_no_subgroup() -> None:
    job = make_training_job(
        "PyTorchJob", "pytorchReplicaSpecs", roles={"Master": (1, OURS), "Worker": (3, {})}
    )

    master = await group_of(make_pod("p", job, labels={LABEL: "master"}), job)
    assert [(each.name, each.min_available) for each in master.sub_groups] == [("master", 1)]
    assert master.min_available == 1
    worker = await group_of(make_pod("p", job, labels={LABEL: "worker"}), job)
    assert (worker.name, worker.min_available, worker.sub_groups) == ("pg-j-uid-j-worker", 1, [])


@pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17])
@pytest.mark.parametrize(("head", "worker", "ours"), [({}, OURS, "w"), (OURS, {}, "headgroup")])
async def test_a_ray_cluster_counts_only_the_groups_of_the_pods_scheduler(
    head: Any, worker: Any, ours: str, rules: Rules
) -> None:
    spec = {
        "headGroupSpec": {"template": head},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": worker}],
    }
    cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)

    def pod(group: str) -> Pod:
        return make_pod("p", cluster, labels={"ray.io/group": group})

    metadata = await group_of(pod(ours), cluster, rules=rules)
    assert [each.name for each in metadata.sub_groups] == [ours]
    assert metadata.min_available == (2 if ours == "w" else 1)
    theirs = {"w": "headgroup", "headgroup": "w"}[ours]
    apart = await group_of(pod(theirs), cluster, rules=rules)
    assert (apart.name, apart.sub_groups) == (f"pg-rc-uid-rc-{theirs}", [])


def make_lws(leader: Any, workers: Any, **template: Any) -> Unstructured:
    spec = {
        "leaderWorkerTemplate": {"size": 5, "leaderTemplate": leader, "workerTemplate": workers, **template}
    }
    return make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)


async def in_lws(lws: Unstructured, worker: int, rules: Rules) -> Metadata:
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": str(worker)}
    return await group_of(make_pod("p", lws, labels=labels), lws, rules=rules)


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("template", THEIRS)
async def test_a_replica_counts_only_the_pods_of_the_pods_scheduler(template: Any, rules: Rules) -> None:
    workers = await in_lws(make_lws(template, OURS), 1, rules)
    assert (workers.name, workers.min_available) == ("pg-l-uid-l", 4)
    assert [(each.name, each.min_available) for each in workers.sub_groups] == [("workers", 4)]
    assert sub_group_of(workers) == "workers"
    leader = await in_lws(make_lws(OURS, template), 0, rules)
    assert (leader.name, leader.min_available) == ("pg-l-uid-l", 1)
    assert [(each.name, each.min_available) for each in leader.sub_groups] == [("leader", 1)]
    assert sub_group_of(leader) == "leader"


@pytest.mark.parametrize("template", [OURS, {}])
@pytest.mark.parametrize("leader", [OURS, None])
async def test_all_pods_of_a_replica_count_if_they_have_one_scheduler(leader: Any, template: Any) -> None:
    lws = make_lws(None if leader is None else template, template)

    assert (await in_lws(lws, 0, Rules.V0_17)).min_available == 5


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize(
    ("size", "policy"),
    [(2, "LeaderWorker"), (3, "LeaderWorker"), (4, "LeaderWorker"), (2, "LeaderExcluded"), (2, "unknown")],
)
async def test_segments_of_a_replica_do_not_wait_for_a_leader_of_another_scheduler(
    size: int, policy: str, rules: Rules
) -> None:
    lws = make_lws({}, OURS, subGroupPolicy={"subGroupSize": size, "subGroupPolicyType": policy})
    metadata = await in_lws(lws, 4, rules)

    assert metadata.min_available == 4
    assert sub_group_of(metadata) is not None
    parents = Counter(each.parent for each in metadata.sub_groups)
    leaves = [each for each in metadata.sub_groups if each.name not in parents]
    assert sum(each.min_available for each in leaves) == 4
    assert all(each.name != "leader" for each in leaves)
    for each in metadata.sub_groups:
        if rules is not Rules.V0_13 and each.name in parents:
            assert each.min_sub_group == parents[each.name]


async def test_a_pod_of_a_replica_whose_template_names_another_scheduler_has_a_group_of_its_own() -> None:
    for leader, workers, worker, role in (({}, OURS, 0, "leader"), (OURS, {}, 1, "workers")):
        metadata = await in_lws(make_lws(leader, workers), worker, Rules.V0_17)

        assert (metadata.name, metadata.min_available) == (f"pg-l-uid-l-{role}", 1)
        assert not metadata.sub_groups
