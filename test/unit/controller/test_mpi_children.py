# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The host file of an MPI TrainJob agrees with its JobSet."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import ConfigMap
from trainjob_world import MPI, World, suspended_world, world


async def hosts(w: World) -> int:
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
    await w.edit_nodes(6)  # of a running TrainJob
    assert await w.reconcile() == []
    await w.restart()
    assert await w.reconcile() == []
    assert await hosts(w) == 4


async def test_a_running_jobs_host_file_is_restored() -> None:
    w = await world(MPI)
    await w.reconcile()
    found = await w.server.get(ConfigMap, ("ns", "job-mpi-hostfile"))
    found.data = {"hostfile": "none"}
    await w.server.update(found)
    await w.restart()
    assert await w.reconcile() == ["apply ConfigMap"]
    assert await hosts(w) == 2
