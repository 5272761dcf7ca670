# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``ttlSecondsAfterFinished``: when a finished TrainJob is announced and deleted, and when it is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import controller_runtime as ctrl
import pytest
from controller_runtime import controller
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.client import Client, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError, StatusError
from controller_runtime.machinery.meta import format_time

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RunPolicy, TrainJob
from pkg.controller.ttl_after_finished import TTLAfterFinished
from pkg.runtime import core
from testkit.builders import written_runtime
from testkit.trainjobs import KEY, START, ReconcilerWorld, ended_condition, runtime, train_job


class World(ReconcilerWorld):
    """A TrainJob that finished at ``START``, its runtime, and the controller."""

    def __init__(
        self,
        ttl: int | None = None,
        *,
        of_runtime: int | None = None,
        default: int | None = None,
        ended: str = "Complete",
        at: str = format_time(START),
        reason: str = "R",
        **spec: Any,
    ) -> None:
        policy: dict[str, Any] = {} if of_runtime is None else {"ttlSecondsAfterFinished": of_runtime}
        (condition,) = ended_condition(ended)["conditions"]
        finished = {"conditions": [{**condition, "reason": reason, "lastTransitionTime": at}]}
        spec |= {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
        self.runtime = runtime(runPolicy=policy)
        super().__init__(
            train_job(status=finished, **spec), self.runtime, written_runtime("ns", "rt", runPolicy=policy)
        )
        self.default = default
        self.manage(self.server)

    def manage(self, client: Client, reader: Client | None = None) -> None:
        recorder: Any = self.recorder
        self.controller = TTLAfterFinished(
            client, recorder, reader=reader, default=self.default, now=self.clock
        )

    @property
    def deletions(self) -> list[Any]:
        return [call.options for call in self.server.calls if call.verb == "delete"]

    async def after(self, seconds: float) -> float | None:
        """Reconcile so many seconds after the end; return the seconds until the next reconcile."""
        self.now = START + timedelta(seconds=seconds)
        left = (await self.controller.reconcile(KEY)).requeue_after
        return None if left is None else left.total_seconds()

    async def exists(self) -> bool:
        return any(each.metadata.deletion_timestamp is None for each in await self.server.list(TrainJob))


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
async def test_a_finished_train_job_is_announced_a_minute_before_it_is_deleted(ended: str) -> None:
    world = World(100, ended=ended)
    version = (await world.server.get(TrainJob, KEY)).metadata
    assert await world.after(0) == 40
    assert await world.after(39.5) == 0.5
    assert world.recorder.events == []
    assert await world.after(40) == 60
    assert await world.after(99.5) == 0.5
    own = "spec.ttlSecondsAfterFinished"
    expiring = "Normal TrainJobExpiring: TrainJob will be deleted at 2025-03-04T05:07:47Z, because "
    assert world.recorder.events == [f"{expiring}{own} is 100 and it finished at 2025-03-04T05:06:07Z"]
    assert await world.exists()
    assert await world.after(100) is None
    assert not await world.exists()
    preconditions = {"uid": version.uid, "resourceVersion": version.resource_version}
    assert world.deletions == [{"propagation": "Foreground", "preconditions": preconditions}]
    assert await world.after(101) is None
    assert len(world.deletions) == 1


async def test_the_wall_clock_is_read_each_hour_until_a_train_job_is_announced() -> None:
    world = World(86400)
    assert await world.after(0) == 3600
    assert await world.after(86400 - 3000) == 2940
    assert await world.after(-86400) == 3600  # the clock was set back
    assert await world.exists()
    assert await world.after(86400) is None  # the clock was set forward
    assert not await world.exists()


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize(
    ("ttl", "of_runtime", "default", "expected", "source"),
    [
        (10, 20, 30, 10, "spec.ttlSecondsAfterFinished"),
        (30, 20, 10, 30, "spec.ttlSecondsAfterFinished"),
        (None, 20, 10, 20, "spec.runPolicy.ttlSecondsAfterFinished of {} rt"),
        (None, None, 30, 30, "ttlSecondsAfterFinished of the manager's Configuration"),
        (None, None, None, None, ""),
    ],
)
async def test_the_train_jobs_own_value_counts_before_the_runtimes_and_the_configurations(
    kind: str, ttl: int | None, of_runtime: int | None, default: int | None, expected: int | None, source: str
) -> None:
    world = World(
        ttl,
        of_runtime=of_runtime,
        default=default,
        runtimeRef={"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": "rt"},
    )
    assert await world.after(0) == expected
    assert [
        f"because {source.format(kind)} is {expected} and" in message for message in world.recorder.events
    ] == ([] if expected is None else [True])
    assert await world.after(3600) is None
    assert await world.exists() is (expected is None)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, id="another controller manages it"),
        pytest.param({"ended": "Suspended", "suspend": True}, id="it is suspended"),
        pytest.param(
            {"ended": "Failed", "reason": "TrainingRuntimeNotSupported"}, id="its runtime may change"
        ),
    ],
)
async def test_a_train_job_is_kept(more: dict[str, Any]) -> None:
    world = World(10, **more)
    assert await world.after(3600) is None
    assert await world.exists()


async def test_a_train_job_that_is_being_deleted_is_left_alone() -> None:
    world = World(10)
    job = await world.server.get(TrainJob, KEY)
    job.metadata.finalizers = ["example.com/kept"]
    await world.server.update(job)
    await world.after(10)
    assert await world.after(11) is None
    assert len(world.deletions) == 1


async def test_without_its_runtime_a_train_job_is_kept_until_the_runtime_returns() -> None:
    world = World(default=10)
    await world.server.delete(world.runtime)
    assert await world.after(3600) is None
    assert await world.exists()


async def test_the_configuration_counts_for_a_train_job_whose_runtime_is_of_another_kind() -> None:
    world = World(default=10, runtimeRef={"apiGroup": "example.com", "kind": "Runtime", "name": "rt"})
    assert await world.after(0) == 10


NOT_SERVED = NotFoundError("the kind is not served", code=404, reason="NotFound")


@pytest.mark.parametrize(
    ("unreadable", "error"),
    [
        (ClusterTrainingRuntime, CacheDegradedError(ClusterTrainingRuntime.gvk, "denied")),
        (ClusterTrainingRuntime, NOT_SERVED),
        (TrainJob, NOT_SERVED),
    ],
)
async def test_an_object_that_cannot_be_read_is_an_error_and_the_train_job_is_kept(
    unreadable: type[Object], error: Exception
) -> None:
    world = World(default=10)

    async def degraded(inner: Client, kind: Any, key: Any) -> Any:
        if kind is unreadable:
            raise error
        return await inner.get(kind, key)

    world.manage(interceptor.wrap(world.server, interceptor.Funcs(get=degraded)))
    with pytest.raises(type(error)):
        await world.after(3600)
    assert await world.exists()


async def test_a_train_job_that_cannot_be_decoded_is_left_to_the_controller_that_reports_it() -> None:
    async def undecodable(_inner: Client, kind: Any, key: Any) -> Any:
        raise UndecodableObjectError(kind.gvk, key, "spec: a list")

    world = World(10)
    world.manage(interceptor.wrap(world.server, interceptor.Funcs(get=undecodable)))
    assert await world.after(20) is None


@pytest.mark.parametrize("at", [format_time(START + timedelta(hours=1)), "9999-12-31T23:59:59Z"])
async def test_a_train_job_that_seems_to_finish_in_the_future_waits_for_the_clock(at: str) -> None:
    world = World(2147483647 if at.startswith("9999") else 120, at=at)
    assert await world.after(0) == 3600  # the clock is read again then
    assert await world.exists()


async def test_a_longer_time_that_the_cache_has_not_seen_yet_counts() -> None:
    world = World(10)
    stale = await world.server.get(TrainJob, KEY)
    await world.train_job(lambda job: setattr(job.spec, "ttl_seconds_after_finished", 1000))
    world.manage(FakeClient(stale, world.runtime), reader=world.server)
    assert await world.after(20) == 920
    assert await world.exists()


async def test_a_train_job_that_changes_during_the_deletion_is_judged_again() -> None:
    world = World(10)

    async def late(inner: Client, obj: Object, **options: Any) -> None:
        await world.train_job(lambda job: setattr(job.spec, "ttl_seconds_after_finished", 1000))
        await inner.delete(obj, **options)

    world.manage(interceptor.wrap(world.server, interceptor.Funcs(delete=late)))
    assert await world.after(20) == 1
    assert await world.exists()
    assert await world.after(21) == 919


async def test_a_train_job_that_another_client_deletes_first_is_no_error() -> None:
    async def late(inner: Client, obj: Object, **options: Any) -> None:
        await inner.delete(obj)
        await inner.delete(obj, **options)

    world = World(10)
    world.manage(interceptor.wrap(world.server, interceptor.Funcs(delete=late)))
    assert await world.after(20) is None
    assert [each for each in world.recorder.events if "Failed" in each] == []
    world.manage(world.server, reader=FakeClient())
    assert await world.after(21) is None


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (StatusError("no", code=500, reason="InternalError"), "no"),
        (NOT_SERVED, "the kind is not served"),
        (
            ForbiddenError("no", code=403, reason="Forbidden"),
            "no. The feature gate TTLAfterFinished needs the role in config/ttl-after-finished",
        ),
    ],
)
async def test_a_refused_deletion_is_reported_and_tried_again(refusal: StatusError, hint: str) -> None:
    world = World(0)

    async def refuse(*_: Any, **__: Any) -> None:
        raise refusal

    world.manage(interceptor.wrap(world.server, interceptor.Funcs(delete=refuse)))
    with pytest.raises(type(refusal)):
        await world.after(5)
    text = "TrainJob, which should be deleted since 2025-03-04T05:06:07Z, cannot be deleted: "
    assert world.recorder.events == [f"Warning TrainJobDeletionFailed: {text}{hint}"]
    world.manage(world.server)
    assert await world.after(6) is None
    assert not await world.exists()


@pytest.mark.parametrize("edited", [False, True], ids=["created again with it", "edited"])
async def test_a_runtimes_new_time_to_live_counts_for_its_finished_train_jobs(edited: bool) -> None:
    world = World()
    world.server.add(train_job("running"))
    options = ctrl.Options(metrics_bind_address="0", health_probe_bind_address="0")
    mgr = ctrl.Manager(ctrl.Config("http://memory"), options, transport=world.server.transport)
    await core.new(mgr.client, mgr.field_indexer)
    recorder: Any = world.recorder
    made = TTLAfterFinished(mgr.client, recorder, reader=mgr.api_reader, default=None, now=world.clock)
    made.setup_with_manager(mgr, controller.Options(skip_name_validation=True))
    world.now = START + timedelta(seconds=30)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await mgr.elected.wait()
        found = await world.server.get(ClusterTrainingRuntime, ("", "rt"))
        await world.server.delete(found)
        await anyio.sleep(1)
        found.metadata, policy = ObjectMeta(name="rt"), RunPolicy(ttl_seconds_after_finished=20)
        found.spec.run_policy = None if edited else policy
        found = await world.server.create(found)
        if edited:
            await anyio.sleep(1)
            assert await world.exists()
            found.spec.run_policy = policy
            await world.server.update(found)
        await anyio.sleep(1)
        left = [each for each in await world.server.list(TrainJob) if not each.metadata.deletion_timestamp]
        assert [each.name for each in left] == ["running"]
        mgr.stop()
