# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The host file of an MPI TrainJob agrees with its JobSet."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.apis.machinery.errors import InvalidError, NotFoundError
from controller_runtime.client import Client, interceptor
from controller_runtime.client.fake import FakeClient
from controller_runtime.rest import TransportError
from trainjob_world import MPI, World, suspended_world, world

from pkg.controller import TrainJobReconciler
from pkg.runtime import core


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


async def test_keys_whose_creation_was_not_answered_are_kept() -> None:
    w = await world(MPI)
    cache_lags = True

    async def get(client: Client, kind: Any, key: Any) -> Any:
        if kind.gvk == Secret.gvk and cache_lags:
            raise NotFoundError("not in the cache yet", code=404)
        return await client.get(kind, key)

    async def apply(client: Client, obj: Any, **options: Any) -> Any:
        if obj.gvk != Secret.gvk:
            return await client.apply(obj, **options)
        if any(each.kind == Secret.gvk for each in w.server.calls if each.is_write):
            raise InvalidError("data: field is immutable when `immutable` is set", code=422, reason="Invalid")
        await client.apply(obj, **options)
        raise TransportError("the connection ended", host="https://fake")

    lossy = interceptor.wrap(w.server, interceptor.Funcs(get=get, apply=apply))
    runtimes = await core.new(lossy, FakeClient())
    w.reconciler = TrainJobReconciler(lossy, w.recorder, runtimes, reader=w.server, now=lambda: w.now)
    with pytest.raises(ExceptionGroup, match="the connection ended"):
        await w.reconcile()
    reported = len(w.recorder.events)
    keys = (await w.server.get(Secret, ("ns", "job-mpi-ssh-auth"))).data

    await w.reconcile()
    assert w.result.requeue_after
    assert len(w.recorder.events) == reported

    cache_lags = False
    await w.reconcile()
    assert (await w.job_set())["spec"]
    assert (await w.server.get(Secret, ("ns", "job-mpi-ssh-auth"))).data == keys
