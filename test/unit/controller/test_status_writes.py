# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from controller_runtime.client import interceptor
from controller_runtime.machinery.errors import InvalidError, NotFoundError

from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import KEY, MakeBench, MakeJob


async def test_a_failure_is_told_as_an_event_and_raised_and_the_status_is_written_all_the_same(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job(suspend=True), error=InvalidError("x" * 951))
    with pytest.raises(ExceptionGroup) as caught:
        await b.reconcile()
    assert [type(error) for error in caught.value.exceptions] == [InvalidError, NotFoundError]
    (event,) = recorder.events
    assert event == (
        "Warning",
        "TrainJobResourcesCreationFailed",
        "TrainJob resources reconciliation failed: " + "x" * 950 + " ...",
    )
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}


async def test_a_short_error_is_told_whole_and_a_single_one_is_raised_as_it_is(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    b.runtime.error = ValueError("y" * 950)
    with pytest.raises(ValueError, match=r"^y{950}$"):
        await b.reconcile()
    assert recorder.events[0][2] == "TrainJob resources reconciliation failed: " + "y" * 950


@pytest.mark.parametrize("taken", [False, True], ids=["refused", "its name is taken"])
async def test_the_error_of_a_reconcile_does_not_wait_for_the_garbage_collection(
    bench: MakeBench, new_train_job: MakeJob, *, taken: bool
) -> None:
    kept: weakref.WeakSet[Exception] = weakref.WeakSet()

    class RefusedError(ChildConflictError):
        def __init__(self) -> None:
            super().__init__("no")
            kept.add(self)

    async def refuse(*_: Any, **__: Any) -> Any:
        raise RefusedError

    b = bench(new_train_job())
    await b.reconcile()
    if taken:
        b.reconciler._children.job_set = refuse  # type: ignore[method-assign]
    else:
        b.runtime.new_objects = refuse
    gc.disable()
    try:
        with suppress(RefusedError):
            await b.reconciler.reconcile(KEY)
        left = len(kept)
    finally:
        gc.enable()
    assert left == 0


async def test_another_writers_change_of_the_rest_does_not_stop_a_status(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        stored = await b.train_job()
        stored.metadata.labels = {"changed": "meanwhile"}
        await b.client.update(stored)
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}
    assert (await b.train_job()).labels == {"changed": "meanwhile"}


@pytest.mark.parametrize(
    "before", [None, {"type": "Theirs", "status": "False", "reason": "R", "message": "m"}]
)
async def test_a_condition_that_another_writer_adds_meanwhile_is_kept(
    bench: MakeBench, new_train_job: MakeJob, before: dict[str, str] | None
) -> None:
    b = bench(new_train_job(suspend=True, conditions=[before] if before else None))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        stored = await b.train_job()
        theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}
        stored.status = stored.status.from_dict({"conditions": [theirs]})
        await b.client.status.update(stored)
        b.runtime.train_job_status = original
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert b.result.requeue_after
    assert await b.conditions() == {"Theirs": ("True", "R")}
    await b.reconcile()
    assert await b.conditions() == {"Theirs": ("True", "R"), "Suspended": ("True", "Suspended")}


@pytest.mark.parametrize(
    "rest", [{}, {"jobsStatus": [{"name": "node", "ready": 1}]}], ids=["alone", "beside counts"]
)
async def test_a_status_whose_conditions_another_writer_emptied_is_written(
    bench: MakeBench, new_train_job: MakeJob, rest: dict[str, Any]
) -> None:
    """An empty list is stored as such. ``kubectl patch --subresource=status`` removes all conditions in this way."""
    job = new_train_job(suspend=True)
    job.status = TrainJobStatus.from_dict({"conditions": [], **rest})
    b = bench(job)
    await b.reconcile()
    assert b.result.requeue_after is None
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}


async def test_a_condition_that_another_writer_adds_is_kept_when_the_rest_of_the_status_goes(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    job = new_train_job()
    job.status = TrainJobStatus.from_dict({"jobsStatus": [{"name": "node", "ready": 1}]})
    b = bench(job)

    async def none(_train_job: TrainJob) -> Any:
        stored = await b.train_job()
        if stored.status.conditions is None:
            theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}
            stored.status = TrainJobStatus.from_dict({**stored.status.to_dict(), "conditions": [theirs]})
            await b.client.status.update(stored)
        return TrainJobStatus()

    b.runtime.train_job_status = none
    await b.reconcile()
    assert b.result.requeue_after
    assert await b.conditions() == {"Theirs": ("True", "R")}


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidError('admission webhook "w" denied the request: no', code=422),
        InvalidError("no", code=422, details={"causes": [{"field": "status", "message": "no"}]}),
    ],
    ids=["webhook", "causes"],
)
async def test_a_refusal_of_a_status_is_not_mistaken_for_a_change_by_another_writer(
    bench: MakeBench, new_train_job: MakeJob, refusal: InvalidError
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise refusal

    b = bench(new_train_job(suspend=True))
    b.client = interceptor.wrap(b.client, interceptor.Funcs(subresource_patch=refuse))  # type: ignore[assignment]
    b.restart()
    with pytest.raises(InvalidError, match="no"):
        await b.reconciler.reconcile(KEY)


async def test_a_status_is_written_again_after_the_kind_was_not_served(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    """A server whose CRD is being replaced answers 404 for objects that it still has."""
    b = bench(new_train_job(suspend=True))
    unserved = NotFoundError("the server could not find the requested resource", code=404, reason="NotFound")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise unserved

    served, b.client = b.client, interceptor.wrap(b.client, interceptor.Funcs(subresource_patch=refuse))  # type: ignore[assignment]
    b.restart()
    with pytest.raises(NotFoundError, match="could not find the requested resource"):
        await b.reconciler.reconcile(KEY)
    b.client = served
    b.restart()
    await b.reconcile()
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}


async def test_a_status_of_a_train_job_that_was_deleted_meanwhile_is_dropped(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        await b.client.delete(await b.train_job())
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()


async def test_a_status_is_not_written_to_another_train_job_of_the_same_name(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        await b.client.delete(await b.train_job())
        successor = new_train_job()
        successor.metadata.uid = "uid-of-the-next"
        b.client.add(successor)
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert await b.conditions() == {}
