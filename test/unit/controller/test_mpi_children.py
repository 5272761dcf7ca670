# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The host file of an MPI TrainJob agrees with its JobSet."""

from __future__ import annotations

import pytest
from controller_runtime.apis.core.v1 import ConfigMap

from pkg.apis.jobset.v1alpha2 import JobSet
from testkit.trainjobs import KEY, MPI, ReconcilerWorld, built_world, suspended_world


async def hosts(w: ReconcilerWorld) -> int:
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    return len((found.data or {})["hostfile"].splitlines())


async def test_the_host_file_agrees_with_the_job_set() -> None:
    w = await suspended_world(MPI)
    await w.edit_nodes(4)
    await w.reconcile()
    assert await hosts(w) == 2
    await w.rebuilt()
    assert await hosts(w) == 4
    await w.suspend(False)
    await w.reconcile()
    await w.edit_nodes(6)  # the TrainJob runs, so the edit waits
    assert await w.reconcile() == []
    await w.restart()
    assert await w.reconcile() == []
    assert await hosts(w) == 4


@pytest.mark.parametrize(("nodes", "pods"), [(1, 1), (2, 1), (3, 2)])
async def test_a_launcher_that_trains_is_one_of_the_nodes_and_leaves_at_least_one(
    nodes: int, pods: int
) -> None:
    policy = {"mlPolicy": {"numNodes": 1, "mpi": {"runLauncherAsNode": True}}}
    w = await built_world(policy, trainer={"image": "one", "numNodes": nodes})
    jobs = {each["name"]: each for each in (await w.job_set())["spec"]["replicatedJobs"]}
    assert jobs["node"]["template"]["spec"]["parallelism"] == pods
    assert await hosts(w) == pods + 1


async def test_a_running_jobs_host_file_is_restored() -> None:
    w = await built_world(MPI)
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    found.data = {"hostfile": "none"}
    await w.server.update(found)
    await w.restart()
    assert await w.reconcile() == ["apply ConfigMap"]
    assert await hosts(w) == 2


@pytest.mark.parametrize("suspended", [False, True], ids=["absent", "suspended"])
async def test_a_job_set_does_not_start_while_a_sibling_is_being_deleted(suspended: bool) -> None:
    w = await built_world(MPI, suspend=True)
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    found.metadata.finalizers = ["example.com/hold"]
    found.data = {"hostfile": "of other pods"}
    await w.server.update(found)
    await w.server.delete(found)
    if not suspended:
        await w.server.delete(await w.server.get(JobSet, KEY))
    await w.suspend(False)
    await w.reconcile()
    assert w.result.requeue_after
    job_sets = await w.server.list(JobSet)
    assert [each.spec.suspend for each in job_sets] == ([True] if suspended else [])

    held = await w.server.get(ConfigMap, found.key)
    held.metadata.finalizers = None
    await w.server.update(held)
    await w.reconcile()
    assert await hosts(w) == 2
    assert not (await w.server.get(JobSet, KEY)).spec.suspend
