# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever numbers a workload has: KAI-Scheduler accepts its group, and the pods that exist together fulfil it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from pkg.apis.kai.v2alpha2 import SubGroup
from pkg.podgrouper import Rules
from pkg.podgrouper.podgroup import Metadata, pod_group_for
from testkit.grouping import group_of, make_object, make_pod

RULES = pytest.mark.parametrize("rules", [Rules.V0_13, Rules.V0_17, Rules.V0_18])


def needed(metadata: Metadata, rules: Rules) -> int:
    """Return how many pods the group requires, after it was checked as the webhook of KAI-Scheduler checks it."""
    spec = pod_group_for(metadata, rules).spec
    groups = spec.sub_groups or []
    names = [each.name for each in groups]
    assert len(set(names)) == len(names), names
    assert {each.parent for each in groups} <= {None, *names}
    children = {name: [each for each in groups if each.parent == name] for name in (None, *names)}

    def pods_of(group: SubGroup) -> int:
        below = children[group.name]
        if not below:
            assert group.min_sub_group is None, group
            assert rules is Rules.V0_13 or group.min_member is not None, group
            return group.min_member or 0
        assert rules is Rules.V0_13 or group.min_member is None, group
        required = len(below) if group.min_sub_group is None else group.min_sub_group
        assert required <= len(below), group
        return max(sum(sorted(map(pods_of, below))[:required]), group.min_member or 0)

    roots = sorted(map(pods_of, children[None]))
    if spec.min_sub_group is not None:
        assert spec.min_member is None
        assert spec.min_sub_group <= len(roots)
        return sum(roots[: spec.min_sub_group])
    assert spec.min_member is not None
    assert spec.min_member >= (0 if rules is Rules.V0_18 else 1)
    return max(spec.min_member, sum(roots))


def check(metadata: Metadata, rules: Rules, name: str, exist: int) -> None:
    assert needed(metadata, rules) <= max(1, exist), metadata
    if metadata.sub_groups:
        assert metadata.find_sub_group_for_pod("team-a", name) is not None, metadata


def lws_cases() -> Iterator[tuple[int, int | None, str | None, str]]:
    for size, segment in product((1, 2, 3, 5, 8), (None, 2, 3, 8)):
        if segment is not None and segment > size:
            continue
        for policy in (None, "LeaderWorker", "LeaderExcluded") if segment else (None,):
            if policy != "LeaderExcluded" or not (size - 1) % (segment or 1):
                yield from ((size, segment, policy, startup) for startup in ("LeaderCreated", "LeaderReady"))


@RULES
async def test_every_replica_of_a_leader_worker_set_can_start(rules: Rules) -> None:
    for size, segment, policy, startup in lws_cases():
        template: dict[str, Any] = {"size": size, "workerTemplate": {}}
        if segment is not None:
            template["subGroupPolicy"] = {
                "subGroupSize": segment,
                "subGroupPolicyType": policy or "LeaderWorker",
            }
        spec = {"leaderWorkerTemplate": template, "startupPolicy": startup}
        lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
        for index in range(size):
            pod = make_pod("p", lws, labels={"leaderworkerset.sigs.k8s.io/worker-index": str(index)})
            alone = startup == "LeaderReady" and not index
            check(await group_of(pod, lws, rules=rules), rules, "p", 1 if alone else size)


@RULES
async def test_every_job_set_without_order_can_start(rules: Rules) -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "b", "jobset.sigs.k8s.io/job-index": "0"}
    numbers = (None, -1, 0, 1, 3)
    for replicas, parallelism, completions in product((None, 0, 2), numbers, numbers):
        job = {"parallelism": parallelism, "completions": completions}
        job = {name: number for name, number in job.items() if number is not None}
        other = {"name": "a", "template": {"spec": job}} | (
            {} if replicas is None else {"replicas": replicas}
        )
        own = {"name": "b", "template": {"spec": {"parallelism": 2}}}
        spec = {"replicatedJobs": [other, own], "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
        job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)
        at_once = [1 if parallelism is None else parallelism, *([] if completions is None else [completions])]
        exist = 2 + (1 if replicas is None else replicas) * max(0, min(at_once))
        check(await group_of(make_pod("p", job_set, labels=labels), job_set, rules=rules), rules, "p", exist)


@RULES
@pytest.mark.parametrize("segment", [None, "2", "3"])
async def test_every_pytorch_job_can_start(segment: str | None, rules: Rules) -> None:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
    annotations = {} if segment is None else {"kai.scheduler/segment-size": segment}
    minimums = (None, -5, 0, 9)
    for masters, workers, elastic, policy in product((None, 0, 1), (1, 5), minimums, minimums):
        specs: dict[str, Any] = {
            "Worker": {"replicas": workers, "template": {"metadata": {"annotations": annotations}}}
        }
        specs |= {} if masters is None else {"Master": {"replicas": masters}}
        spec: dict[str, Any] = {"pytorchReplicaSpecs": specs}
        spec |= {} if elastic is None else {"elasticPolicy": {"minReplicas": elastic}}
        spec |= {} if policy is None else {"runPolicy": {"schedulingPolicy": {"minAvailable": policy}}}
        job = make_object("kubeflow.org/v1", "PyTorchJob", "j", spec=spec)
        metadata = await group_of(make_pod("p", job, labels=labels), job, rules=rules)
        check(metadata, rules, "p", workers + (masters or 0))


@RULES
async def test_every_ray_cluster_can_start(rules: Rules) -> None:
    numbers = (None, 0, 1, 4)
    for replicas, least, most, hosts, elastic in product(
        numbers, numbers, numbers, (None, 0, 2), (False, True)
    ):
        fields = {"replicas": replicas, "minReplicas": least, "maxReplicas": most, "numOfHosts": hosts}
        worker = {name: number for name, number in fields.items() if number is not None}
        spec = {"enableInTreeAutoscaling": elastic, "workerGroupSpecs": [{"groupName": "w", **worker}]}
        cluster = make_object("ray.io/v1", "RayCluster", "rc", spec=spec)
        head = make_pod("p", cluster, labels={"ray.io/group": "headgroup"})
        created = max(replicas or 0, least or 0)
        created = max(0, created if most is None else min(created, most)) * (1 if hosts is None else hosts)
        check(await group_of(head, cluster, rules=rules), rules, "p", 1 + created)
