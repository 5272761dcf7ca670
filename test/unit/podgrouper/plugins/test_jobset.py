# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import Rules
from testkit.grouping import group_of, make_object, make_pod


@pytest.mark.parametrize(
    ("depends_on", "job", "name", "needed"),
    [
        ([{"name": "init", "status": "Complete"}], "init", "pg-js-uid-js-init", 1),
        ([{"name": "init", "status": "Complete"}], "node", "pg-js-uid-js-node", 2),
        ([], "node", "pg-js-uid-js", 3),
    ],
)
async def test_a_dependency_between_replicated_jobs_makes_each_a_group(
    depends_on: list[Any], job: str, name: str, needed: int
) -> None:
    node = {"name": "node", "replicas": 2, "dependsOn": depends_on}
    spec = {"replicatedJobs": [{"name": "init"}, node], "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)

    metadata = await group_of(
        make_pod("p", job_set, labels={"jobset.sigs.k8s.io/replicatedjob-name": job}), job_set
    )

    assert (metadata.name, metadata.min_available) == (name, needed)


@pytest.mark.parametrize(
    ("numbers", "pods"),
    [
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 2, "completions": 4}, 2),
        ({"parallelism": 3}, 3),
        ({"completions": 3}, 1),
        ({}, 1),
        ({"parallelism": 0}, 0),
        ({"parallelism": 4, "completions": 0}, 0),
    ],
)
async def test_a_replica_has_the_pods_that_the_job_controller_creates(
    numbers: dict[str, int], pods: int
) -> None:
    jobs = [{"name": "a"}, {"name": "b", "replicas": 2, "template": {"spec": numbers}}]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "b", "jobset.sigs.k8s.io/job-index": "0"}
    pod = make_pod("p", job_set, labels=labels)

    assert (await group_of(pod, job_set)).min_available == 1 + 2 * pods
    leaves = (await group_of(pod, job_set, rules=Rules.V0_17)).sub_groups
    assert [each.min_available for each in leaves if each.parent == "b"] == [pods, pods]


@pytest.mark.parametrize("replicas", [0, -1])
async def test_an_idle_replicated_job_is_left_out(replicas: int) -> None:
    jobs = [{"name": "a", "replicas": 2}, {"name": "idle", "replicas": replicas}]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"}
    pod = make_pod("p", job_set, labels=labels)

    assert (await group_of(pod, job_set)).min_available == 2
    tree = await group_of(pod, job_set, rules=Rules.V0_17)
    assert tree.min_sub_group == 1
    assert [each.name for each in tree.sub_groups] == ["a", "a-replica-0", "a-replica-1"]
