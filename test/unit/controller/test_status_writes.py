# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from controller_runtime.client import interceptor
from controller_runtime.machinery.errors import InvalidError, NotFoundError

from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import KEY, ReconcilerWorld, built_world, train_job, world

THEIRS = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}
COUNTS = {"name": "node", "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, "ready": 1}
SUSPENDED = {"Suspended": ("True", "Suspended")}


async def test_a_failure_is_told_as_an_event_and_raised_and_the_status_is_written_all_the_same() -> None:
    w = await world(suspend=True)
    w.server.refuse = lambda _obj: InvalidError("x" * 951)
    with pytest.raises(ExceptionGroup) as caught:
        await w.reconcile()
    assert [type(error) for error in caught.value.exceptions] == [InvalidError, NotFoundError]
    told = "Warning TrainJobResourcesCreationFailed: TrainJob resources reconciliation failed: "
    assert w.recorder.events == [told + "x" * 950 + " ..."]
    assert await w.conditions() == SUSPENDED


async def test_a_short_error_is_told_whole_and_a_single_one_is_raised_as_it_is() -> None:
    w = await built_world()

    async def fail(_: TrainJob) -> Any:
        raise ValueError("y" * 950)

    await w.restart()  # which forgets that nothing has changed
    for runtime in w.reconciler._runtimes.values():
        runtime.objects_and_state = fail  # type: ignore[method-assign, assignment] # a plugin fails
    with pytest.raises(ValueError, match=r"^y{950}$"):
        await w.reconcile()
    assert w.recorder.events[0].endswith("reconciliation failed: " + "y" * 950)


@pytest.mark.parametrize("taken", [False, True], ids=["refused", "its name is taken"])
async def test_the_error_of_a_reconcile_does_not_wait_for_the_garbage_collection(*, taken: bool) -> None:
    kept: weakref.WeakSet[Exception] = weakref.WeakSet()

    class RefusedError(ChildConflictError):
        def __init__(self) -> None:
            super().__init__("no")
            kept.add(self)

    async def refuse(*_: Any, **__: Any) -> Any:
        raise RefusedError

    w = await built_world()
    if taken:
        w.reconciler._children.job_set = refuse  # type: ignore[method-assign]
    else:
        for runtime in w.reconciler._runtimes.values():
            runtime.require = refuse  # type: ignore[method-assign]
    gc.disable()
    try:
        with suppress(RefusedError):
            await w.reconciler.reconcile(KEY)
        left = len(kept)
    finally:
        gc.enable()
    assert left == 0


async def changed_meanwhile(
    w: ReconcilerWorld, change: Callable[[ReconcilerWorld], Awaitable[object]]
) -> None:
    """Reconcile; ``change`` happens before the request with the status arrives."""

    async def patch_late(client: Any, subresource: str, obj: Any, patch: Any, **options: Any) -> Any:
        await change(w)
        return await client.subresource(subresource).patch(obj, patch, **options)

    await w.restart(interceptor.Funcs(subresource_patch=patch_late))
    await w.reconcile()
    await w.restart()


async def add_condition(w: ReconcilerWorld) -> None:
    stored = await w.server.get(TrainJob, KEY)
    others = {key: value for key, value in stored.status.to_dict().items() if key != "conditions"}
    stored.status = TrainJobStatus.from_dict({**others, "conditions": [THEIRS]})
    await w.server.status.update(stored)


async def test_another_writers_change_of_the_rest_does_not_stop_a_status() -> None:
    async def label(w: ReconcilerWorld) -> None:
        stored = await w.server.get(TrainJob, KEY)
        stored.metadata.labels = {"changed": "meanwhile"}
        await w.server.update(stored)

    w = await world(suspend=True)
    await changed_meanwhile(w, label)
    assert await w.conditions() == SUSPENDED
    assert (await w.server.get(TrainJob, KEY)).labels == {"changed": "meanwhile"}


@pytest.mark.parametrize("before", [None, {"conditions": [{**THEIRS, "status": "False"}]}])
async def test_a_condition_that_another_writer_adds_meanwhile_is_kept(before: dict[str, Any] | None) -> None:
    w = await world(suspend=True, status=before)
    await changed_meanwhile(w, add_condition)
    assert w.result.requeue_after
    assert await w.conditions() == {"Theirs": ("True", "R")}
    await w.reconcile()
    assert await w.conditions() == {"Theirs": ("True", "R"), **SUSPENDED}


async def test_a_condition_that_another_writer_adds_is_kept_when_the_rest_of_the_status_goes() -> None:
    w = await world(status={"jobsStatus": [COUNTS]})
    await changed_meanwhile(w, add_condition)
    assert w.result.requeue_after
    assert await w.conditions() == {"Theirs": ("True", "R")}


@pytest.mark.parametrize("rest", [{}, {"jobsStatus": [COUNTS]}], ids=["alone", "beside counts"])
async def test_a_status_whose_conditions_another_writer_emptied_is_written(rest: dict[str, Any]) -> None:
    """An empty list is stored as such. ``kubectl patch --subresource=status`` removes all conditions in this way."""
    w = await built_world(suspend=True, status={"conditions": [], **rest})
    assert w.result.requeue_after is None
    assert await w.conditions() == SUSPENDED


async def test_a_status_whose_only_change_is_an_empty_list_is_not_written() -> None:
    w = await world(status={"conditions": []})
    assert "patch TrainJob/status" not in await w.writes()


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidError('admission webhook "w" denied the request: no', code=422),
        InvalidError("no", code=422, details={"causes": [{"field": "status", "message": "no"}]}),
        # A server whose CRD is being replaced answers 404 for objects that it still has.
        NotFoundError("no: could not find the requested resource", code=404, reason="NotFound"),
    ],
    ids=["webhook", "causes", "the kind is not served"],
)
async def test_a_refused_status_is_an_error_and_is_written_later(refusal: Exception) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise refusal

    w = await world(suspend=True)
    await w.restart(interceptor.Funcs(subresource_patch=refuse))
    with pytest.raises(type(refusal), match="no"):
        await w.reconcile()
    await w.restart()
    await w.reconcile()
    assert await w.conditions() == SUSPENDED


@pytest.mark.parametrize("successor", [False, True], ids=["", "another of the same name"])
async def test_a_status_of_a_train_job_that_was_deleted_meanwhile_is_dropped(successor: bool) -> None:
    async def delete(w: ReconcilerWorld) -> None:
        await w.server.delete(await w.server.get(TrainJob, KEY))
        if successor:
            w.server.add(train_job(metadata={"uid": "uid-of-the-next"}))

    w = await world(suspend=True)
    await changed_meanwhile(w, delete)
    if successor:
        assert await w.conditions() == {}
