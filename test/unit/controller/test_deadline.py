# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``activeDeadlineSeconds``: when the deadline passes, and how the TrainJob then ends."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.cache import CacheDegradedError
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, conditions
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.reconcile import Request, Result
from controller_runtime.workqueue import PriorityQueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.runtime import core
from pkg.util.trainjob import ChildConflictError
from testkit.builders import (
    make_cluster_training_runtime,
    make_ended_status,
    make_train_job,
    make_training_runtime_spec,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("team-a", "job")


class Events:
    def event(self, _obj: Object, event_type: str, reason: str, message: str) -> None:
        raise AssertionError(f"{event_type} {reason} {message}")


class NoEvents(Events):
    def event(self, _obj: Object, event_type: str, reason: str, message: str) -> None:
        """Accept any event."""


class World(FakeClient):
    """A TrainJob with a deadline of one minute, its controller and a clock."""

    def __init__(self, **spec: Any) -> None:
        self.clock = START
        job = make_train_job(*KEY, active_deadline_seconds=60, **spec)
        job.metadata.creation_timestamp = format_time(START)
        stored = {key: value for key, value in job.to_dict().items() if key != "status"}
        super().__init__(
            TrainJob.from_dict(stored),
            make_cluster_training_runtime("runtime", make_training_runtime_spec()),
            now=lambda: self.clock,
        )
        self.refuses_deletes = False
        self.recorder = Events()

    async def delete(self, obj: Object, **options: Any) -> None:
        if self.refuses_deletes:
            raise StatusError("no", code=500, reason="InternalError")
        await super().delete(obj, **options)

    async def start(self) -> None:
        runtimes = await core.new(self, FakeClient())
        self.reconciler = TrainJobReconciler(self, self.recorder, runtimes, now=lambda: self.clock)

    async def after(self, seconds: float) -> Result:
        self.clock = START + timedelta(seconds=seconds)
        return await self.reconciler.reconcile(Request(*KEY))

    async def failed(self) -> str | None:
        found = conditions.find((await self.get(TrainJob, KEY)).status.conditions, "Failed")
        return found.reason if found is not None and found.status == "True" else None

    async def job_sets(self) -> int:
        return len(await self.list(JobSet))


@pytest.fixture
async def world() -> World:
    made = World()
    await made.start()
    return made


async def test_a_train_job_fails_at_its_deadline_and_its_job_set_is_deleted(world: World) -> None:
    assert (await world.after(0)).requeue_after == timedelta(seconds=60)
    assert (await world.after(45)).requeue_after == timedelta(seconds=15)
    assert (await world.failed(), await world.job_sets()) == (None, 1)

    assert (await world.after(60)).requeue_after is None

    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)
    await world.after(61)
    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)


async def test_a_failed_delete_is_tried_again_also_after_a_restart(world: World) -> None:
    await world.after(0)
    world.refuses_deletes = True
    with pytest.raises(StatusError, match="no"):
        await world.after(60)
    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 1)

    await world.start()
    world.refuses_deletes = False
    await world.after(61)

    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)


async def test_a_job_set_that_cannot_be_read_at_the_deadline_is_deleted_later(world: World) -> None:
    await world.after(0)
    get = world.get

    async def degraded(kind: Any, key: Any) -> Any:
        if kind is JobSet:
            raise CacheDegradedError(JobSet.gvk, "denied")
        return await get(kind, key)

    world.get = degraded  # type: ignore[method-assign]
    for seconds in (60, 90):
        assert (await world.after(seconds)).requeue_after == timedelta(seconds=30)
    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 1)

    world.get = get  # type: ignore[method-assign]
    assert (await world.after(120)).requeue_after is None
    assert await world.job_sets() == 0


async def test_a_job_set_that_is_adopted_at_the_deadline_is_deleted(world: World) -> None:
    await world.after(0)
    orphan = await world.get(JobSet, KEY)
    orphan.metadata.owner_references = None
    await world.update(orphan)

    await world.after(60)

    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)


async def test_a_train_job_whose_reconciles_fail_is_enqueued_at_its_deadline(world: World) -> None:
    queue: PriorityQueue[Request] = PriorityQueue()
    await world.reconciler.timer.start(queue)
    world.reconciler._recorder = NoEvents()
    await world.delete(make_cluster_training_runtime("runtime", make_training_runtime_spec()))
    began = anyio.current_time()
    with pytest.raises(Exception, match="runtime"):
        await world.after(20)
    queue.add(Request(*KEY), after=1000)  # the retry

    assert await queue.get() == Request(*KEY)
    assert anyio.current_time() - began == pytest.approx(40)
    await world.after(60)
    assert await world.failed() == "DeadlineExceeded"


@pytest.mark.parametrize("owner", [None, "another TrainJob", "an earlier TrainJob"])
async def test_the_deadline_and_the_condition_suspended_hold_while_the_name_of_the_job_set_is_taken(
    owner: str | None,
) -> None:
    world = World(suspend=True)
    world.recorder = NoEvents()
    await world.start()
    other = JobSet.from_dict({"metadata": {"namespace": KEY[0], "name": KEY[1]}, "spec": {"suspend": False}})
    if owner is not None:
        name = KEY[1] if owner == "an earlier TrainJob" else "other"
        reference = OwnerReference(
            api_version=TrainJob.gvk.api_version, kind="TrainJob", name=name, uid="other"
        )
        reference.controller = True
        other.metadata.owner_references = [reference]
    await world.create(other)

    async def conditions_after(seconds: float) -> dict[str, str]:
        with contextlib.suppress(ChildConflictError):
            await world.after(seconds)
        return {each.type: each.status for each in (await world.get(TrainJob, KEY)).status.conditions or ()}

    assert await conditions_after(10) == {"Suspended": "True"}
    job = await world.get(TrainJob, KEY)
    job.spec.suspend = False
    await world.update(job)
    assert await conditions_after(20) == {"Suspended": "False"}
    assert await conditions_after(79) == {"Suspended": "False"}
    assert await conditions_after(80) == {"Suspended": "False", "Failed": "True"}
    assert await world.failed() == "DeadlineExceeded"
    assert (await world.after(81)).requeue_after is None
    assert await world.job_sets() == 1


async def test_a_train_job_without_a_job_set_is_not_built_after_its_deadline(world: World) -> None:
    await world.after(61)
    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)
    assert not [call for call in world.writes if call.kind.kind == "JobSet"]


async def test_no_job_set_is_built_if_the_deadline_passes_while_its_objects_are_read() -> None:
    class Slow(World):
        async def get(self, kind: Any, key: Any, **options: Any) -> Any:
            if kind is ClusterTrainingRuntime:
                self.clock = START + timedelta(seconds=60)
            return await super().get(kind, key, **options)

    world = Slow()
    await world.start()
    assert (await world.after(59)).requeue_after
    assert world.clock == START + timedelta(seconds=60)
    assert (await world.failed(), await world.job_sets()) == (None, 0)
    await world.after(60)
    assert (await world.failed(), await world.job_sets()) == ("DeadlineExceeded", 0)
    assert not [call for call in world.writes if call.kind.kind == "JobSet"]


@pytest.mark.parametrize(("end", "condition"), [("Completed", "Complete"), ("Failed", "Failed")])
async def test_a_job_set_that_has_ended_before_the_deadline_decides(
    world: World, end: str, condition: str
) -> None:
    await world.after(0)
    job_set = await world.get(JobSet, KEY)
    job_set.status = make_ended_status(end, reason="Ended")
    await world.status.update(job_set)

    await world.after(61)

    found = (await world.get(TrainJob, KEY)).status.conditions or []
    assert [(each.type, each.reason) for each in found] == [(condition, "Ended")]
    assert await world.job_sets() == 1


async def test_a_job_set_that_completes_late_does_not_complete_the_train_job(world: World) -> None:
    await world.after(0)
    world.refuses_deletes = True
    with pytest.raises(StatusError, match="no"):
        await world.after(60)
    job_set = await world.get(JobSet, KEY)
    ended = {
        "type": "Completed",
        "status": "True",
        "reason": "Ended",
        "message": "",
        "lastTransitionTime": "",
    }
    job_set.status = type(job_set.status).from_dict(
        {"conditions": [ended | {"lastTransitionTime": format_time(START)}]}
    )
    await world.status.update(job_set)

    with pytest.raises(StatusError, match="no"):
        await world.after(61)

    found = (await world.get(TrainJob, KEY)).status.conditions or []
    assert [(each.type, each.reason) for each in found] == [("Failed", "DeadlineExceeded")]


async def test_the_time_counts_from_the_last_resume() -> None:
    world = World(suspend=True)
    await world.start()
    assert (await world.after(0)).requeue_after is None
    await world.after(1000)
    assert await world.failed() is None

    job = await world.get(TrainJob, KEY)
    job.spec.suspend = False
    await world.update(job)

    assert (await world.after(1000)).requeue_after == timedelta(seconds=60)
    assert (await world.after(1050)).requeue_after == timedelta(seconds=10)
    await world.after(1061)
    assert await world.failed() == "DeadlineExceeded"
