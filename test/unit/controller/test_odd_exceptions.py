# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""If a plugin or an event recorder raises any exception, one reconcile fails, and the next builds the TrainJob."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from controller_runtime.controller import Controller
from ctrl_testkit.odd_exceptions import Odd, Written, errors

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.runtime.core import ClusterTrainingRuntime
from testkit.trainjobs import KEY, world

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("recorder_fails", [False, True], ids=["plugin", "plugin and recorder"])
async def test_a_plugin_fails_one_reconcile(
    monkeypatch: pytest.MonkeyPatch, odd: Odd, written: Written, *, recorder_fails: bool
) -> None:
    build = ClusterTrainingRuntime.objects_and_state
    calls = 0

    async def fails_once(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise odd()
        return await build(*arguments)

    def fail(*_: object) -> None:
        raise odd()

    monkeypatch.setattr(ClusterTrainingRuntime, "objects_and_state", fails_once)
    w = await world()
    if recorder_fails:
        monkeypatch.setattr(w.recorder, "event", fail)
    made = Controller(f"odd-{id(w)}", w.reconciler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.start)
        await made.ready()
        made.queue.add(KEY)
        await anyio.sleep(100)
        made.stop()
    assert await w.server.get(JobSet, KEY)
    assert errors(written) == ["Reconciler error"]
