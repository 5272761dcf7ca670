# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``activeDeadlineSeconds``: when the deadline passes, and how the TrainJob then ends."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import interceptor
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.reconcile import Request
from controller_runtime.workqueue import PriorityQueue

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import KEY, START, ReconcilerWorld, world

EXCEEDED = ("True", "DeadlineExceeded")


async def limited(**spec: Any) -> ReconcilerWorld:
    """Return a world whose TrainJob has a deadline of one minute."""
    return await world(metadata={"creationTimestamp": format_time(START)}, activeDeadlineSeconds=60, **spec)


async def after(w: ReconcilerWorld, seconds: float) -> float | None:
    """Reconcile so many seconds after the begin; return the seconds until the next reconcile."""
    w.now = START + timedelta(seconds=seconds)
    await w.reconcile()
    return None if w.result.requeue_after is None else w.result.requeue_after.total_seconds()


async def has_ended(w: ReconcilerWorld, *, job_sets: int = 0) -> bool:
    """Return whether the deadline has ended the TrainJob, and check the number of JobSets."""
    assert len(await w.server.list(JobSet)) == job_sets
    return (await w.conditions()).get("Failed") == EXCEEDED


async def refuse(*_: Any, **__: Any) -> None:
    raise StatusError("no", code=500, reason="InternalError")


async def failed(w: ReconcilerWorld, seconds: float) -> tuple[PriorityQueue[Request], float]:
    """Reconcile without a runtime; return the queue of the timer, and when the reconcile began."""
    queue: PriorityQueue[Request] = PriorityQueue()
    await w.reconciler.timer.start(queue)
    await w.server.delete(await w.server.get(ClusterTrainingRuntime, ("", "rt")))
    began = anyio.current_time()
    with pytest.raises(Exception, match="rt"):
        await after(w, seconds)
    return queue, began


async def test_a_train_job_fails_at_its_deadline_and_its_job_set_is_deleted() -> None:
    w = await limited()
    assert await after(w, 0) == 60
    assert await after(w, 45) == 15
    assert not await has_ended(w, job_sets=1)
    assert await after(w, 60) is None
    assert await has_ended(w)
    await after(w, 61)
    assert await has_ended(w)
    assert w.recorder.events == []


async def test_the_wall_clock_is_read_each_hour_until_the_deadline() -> None:
    w = await world(metadata={"creationTimestamp": format_time(START)}, activeDeadlineSeconds=86400)
    queue: PriorityQueue[Request] = PriorityQueue()
    await w.reconciler.timer.start(queue)
    for at in (0, 82799, -86400):  # the clock is set forward and back
        began = anyio.current_time()
        left = await after(w, at)
        assert left == 86400 - at
        queue.add(KEY, after=left)  # as the controller does
        assert await queue.get() == KEY
        queue.done(KEY)
        assert anyio.current_time() - began == 3600
    assert await after(w, 82800) == 3600
    assert len(queue) == 0
    assert not await has_ended(w, job_sets=1)
    await after(w, 86400)
    assert await has_ended(w)


@pytest.mark.parametrize(
    "error",
    [
        StatusError("no", code=500, reason="InternalError"),
        NotFoundError("no: the kind is not served", code=404, reason="NotFound"),
    ],
)
async def test_a_failed_delete_is_tried_again_also_after_a_restart(error: StatusError) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    w = await limited()
    await w.restart(interceptor.Funcs(delete=fail))
    await after(w, 0)
    with pytest.raises(StatusError, match="no"):
        await after(w, 60)
    assert await has_ended(w, job_sets=1)
    await w.restart()
    await after(w, 61)
    assert await has_ended(w)


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_job_set_that_another_client_deletes_at_the_deadline_is_no_error(replaced: bool) -> None:
    async def delete_first(inner: Any, obj: Any, **options: Any) -> None:
        await inner.delete(obj)
        if replaced:
            await inner.create(JobSet.from_dict({"metadata": {"namespace": "ns", "name": "job"}, "spec": {}}))
        await inner.delete(obj, **options)

    w = await limited()
    await after(w, 0)
    await w.restart(interceptor.Funcs(delete=delete_first))
    assert await after(w, 60) is None
    assert await has_ended(w, job_sets=int(replaced))


async def test_a_job_set_that_cannot_be_read_at_the_deadline_is_deleted_later() -> None:
    async def degraded(inner: Any, kind: Any, key: Any) -> Any:
        if kind is JobSet:
            raise CacheDegradedError(JobSet.gvk, "denied")
        return await inner.get(kind, key)

    w = await limited()
    await after(w, 0)
    await w.restart(interceptor.Funcs(get=degraded))
    for seconds in (60, 90):
        assert await after(w, seconds) == 30
    assert await has_ended(w, job_sets=1)
    await w.restart()
    assert await after(w, 120) is None
    assert await has_ended(w)


async def test_a_job_set_that_is_adopted_at_the_deadline_is_deleted() -> None:
    w = await limited()
    await after(w, 0)
    orphan = await w.server.get(JobSet, KEY)
    orphan.metadata.owner_references = None
    await w.server.update(orphan)
    await after(w, 60)
    assert await has_ended(w)


@pytest.mark.parametrize(
    ("deadline", "waited"),
    [
        pytest.param(60, 40, id="at its deadline"),
        pytest.param(86400, 3600, id="each hour before its deadline"),
    ],
)
async def test_a_train_job_whose_reconciles_fail_is_enqueued(deadline: int, waited: float) -> None:
    w = await world(metadata={"creationTimestamp": format_time(START)}, activeDeadlineSeconds=deadline)
    queue, began = await failed(w, 20)
    queue.add(KEY, after=10_000)  # the retry
    assert await queue.get() == KEY
    assert anyio.current_time() - began == pytest.approx(waited)
    await after(w, deadline)
    assert await has_ended(w)


@pytest.mark.parametrize("owner", [None, "another TrainJob", "an earlier TrainJob"])
async def test_the_deadline_and_the_condition_suspended_hold_while_the_name_of_the_job_set_is_taken(
    owner: str | None,
) -> None:
    w = await limited(suspend=True)
    other = JobSet.from_dict({"metadata": {"namespace": "ns", "name": "job"}, "spec": {"suspend": False}})
    if owner is not None:
        name = "job" if owner == "an earlier TrainJob" else "other"
        reference = OwnerReference(
            api_version=TrainJob.gvk.api_version, kind="TrainJob", name=name, uid="other", controller=True
        )
        other.metadata.owner_references = [reference]
    await w.server.create(other)

    async def conditions_after(seconds: float) -> dict[str, str]:
        with contextlib.suppress(ChildConflictError):
            await after(w, seconds)
        return {each: status for each, (status, _) in (await w.conditions()).items()}

    assert await conditions_after(10) == {"Suspended": "True"}
    await w.suspend(False)
    assert await conditions_after(20) == {"Suspended": "False"}
    assert await conditions_after(79) == {"Suspended": "False"}
    assert await conditions_after(80) == {"Suspended": "False", "Failed": "True"}
    assert await has_ended(w, job_sets=1)
    assert await after(w, 81) is None
    assert await has_ended(w, job_sets=1)


async def test_a_train_job_without_a_job_set_is_not_built_after_its_deadline() -> None:
    w = await limited()
    await after(w, 61)
    assert await has_ended(w)
    assert not [call for call in w.server.writes if call.kind == JobSet.gvk]


async def test_no_job_set_is_built_if_the_deadline_passes_while_its_objects_are_read() -> None:
    w = await limited()

    async def slow(inner: Any, kind: Any, key: Any) -> Any:
        if kind is ClusterTrainingRuntime:
            w.now = START + timedelta(seconds=60)
        return await inner.get(kind, key)

    await w.restart(interceptor.Funcs(get=slow))
    assert await after(w, 59)
    assert w.now == START + timedelta(seconds=60)
    assert not await has_ended(w)
    await after(w, 60)
    assert await has_ended(w)
    assert not [call for call in w.server.writes if call.kind == JobSet.gvk]


@pytest.mark.parametrize(("end", "condition"), [("Completed", "Complete"), ("Failed", "Failed")])
async def test_a_job_set_that_has_ended_before_the_deadline_decides(end: str, condition: str) -> None:
    w = await limited()
    await after(w, 0)
    await w.finish(end)
    await after(w, 61)
    assert await w.conditions() == {condition: ("True", "R")}
    assert not await has_ended(w, job_sets=1)


@pytest.mark.parametrize("end", ["Completed", "Failed"])
async def test_the_reason_of_a_train_job_stays_when_its_job_set_ends_after_the_deadline(end: str) -> None:
    w = await limited()
    await w.restart(interceptor.Funcs(delete=refuse))
    await after(w, 0)
    for seconds in (60, 61):
        with pytest.raises(StatusError, match="no"):
            await after(w, seconds)
        assert await w.conditions() == {"Failed": EXCEEDED}
        await w.finish(end)


async def test_the_time_counts_from_the_last_resume() -> None:
    w = await limited(suspend=True)
    assert await after(w, 0) is None
    await after(w, 1000)
    assert not await has_ended(w, job_sets=1)
    await w.suspend(False)
    assert await after(w, 1000) == 60
    assert await after(w, 1050) == 10
    await after(w, 1061)
    assert await has_ended(w)
