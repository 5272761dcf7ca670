# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``ttlSecondsAfterFinished``: when a finished TrainJob is announced and deleted, and when it is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controller_runtime.cache import CacheDegradedError
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, StatusError
from controller_runtime.machinery.meta import format_time
from controller_runtime.reconcile import Request

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, RunPolicy, TrainingRuntime, TrainJob
from pkg.controller.ttl_after_finished import TTLAfterFinished
from testkit.builders import make_cluster_training_runtime, make_train_job, make_training_runtime

START = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("team-a", "job")


class World(FakeClient):
    """A TrainJob that finished at ``START``, its runtime, the controller and a clock."""

    def __init__(
        self,
        ttl: int | None = None,
        *,
        of_runtime: int | None = None,
        default: int | None = None,
        ended: str = "Complete",
        at: str = format_time(START),
        reason: str = "R",
        **more: Any,
    ) -> None:
        job = make_train_job(*KEY, **more).to_dict()
        if ttl is not None:
            job["spec"]["ttlSecondsAfterFinished"] = ttl
        ends = {"type": ended, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": at}
        job["status"] = {"conditions": [ends]}
        namespaced = job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
        runtime: TrainingRuntime | ClusterTrainingRuntime = make_cluster_training_runtime()
        if namespaced:
            runtime = make_training_runtime(KEY[0])
        runtime.spec.run_policy = RunPolicy(ttl_seconds_after_finished=of_runtime)
        super().__init__(TrainJob.from_dict(job), runtime)
        self.runtime = runtime
        self.clock = START
        self.refusal: Exception | None = None
        self.options: list[dict[str, Any]] = []
        self.events: list[tuple[str, str, str]] = []
        recorder: Any = self
        self.controller = TTLAfterFinished(self, recorder, default=default, now=lambda: self.clock)

    def event(self, _obj: Object, event_type: str, reason: str, message: str) -> None:
        self.events.append((event_type, reason, message))

    def event_once(self, obj: Object, event_type: str, reason: str, message: str, *, key: str) -> None:
        assert key in message
        if (event_type, reason, message) not in self.events:
            self.event(obj, event_type, reason, message)

    async def delete(self, obj: Object, **options: Any) -> None:
        self.options.append(options)
        if self.refusal is not None:
            raise self.refusal
        await super().delete(obj, **options)

    async def after(self, seconds: float) -> float | None:
        """Reconcile so many seconds after the end; return the seconds until the next reconcile."""
        self.clock = START + timedelta(seconds=seconds)
        found = (await self.controller.reconcile(Request(*KEY))).requeue_after
        return None if found is None else found.total_seconds()

    async def exists(self) -> bool:
        found = await self.list(TrainJob)
        return any(each.metadata.deletion_timestamp is None for each in found)


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
async def test_a_finished_train_job_is_announced_a_minute_before_it_is_deleted(ended: str) -> None:
    world = World(100, ended=ended)
    version = (await world.get(TrainJob, KEY)).metadata
    assert await world.after(0) == 40
    assert await world.after(39.5) == 0.5
    assert world.events == []
    assert await world.after(40) == 60
    assert await world.after(99.5) == 0.5
    own, began = "spec.ttlSecondsAfterFinished", "2030-01-01T00:00:00Z"
    assert world.events == [
        (
            "Normal",
            "TrainJobExpiring",
            f"TrainJob will be deleted at 2030-01-01T00:01:40Z, because {own} is 100 and it finished at {began}",
        )
    ]
    assert await world.exists()
    assert await world.after(100) is None
    assert not await world.exists()
    preconditions = {"uid": version.uid, "resourceVersion": version.resource_version}
    assert world.options == [{"propagation": "Foreground", "preconditions": preconditions}]
    assert await world.after(101) is None
    assert len(world.options) == 1


async def test_a_train_job_with_a_ttl_of_0_is_deleted_at_once() -> None:
    world = World(0)
    assert await world.after(0) is None
    assert not await world.exists()


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize(
    ("ttl", "of_runtime", "default", "expected", "source"),
    [
        (10, 20, 30, 10, "spec.ttlSecondsAfterFinished"),
        (30, 20, 10, 30, "spec.ttlSecondsAfterFinished"),
        (None, 20, 10, 20, "spec.runPolicy.ttlSecondsAfterFinished of {} runtime"),
        (None, None, 30, 30, "ttlSecondsAfterFinished of the manager's Configuration"),
        (None, None, None, None, ""),
    ],
)
async def test_the_train_jobs_own_value_counts_before_the_runtimes_and_the_configurations(
    kind: str, ttl: int | None, of_runtime: int | None, default: int | None, expected: int | None, source: str
) -> None:
    world = World(ttl, of_runtime=of_runtime, default=default, runtime_kind=kind)
    assert await world.after(0) == expected
    assert [
        f"because {source.format(kind)} is {expected} and" in message for *_, message in world.events
    ] == ([] if expected is None else [True])
    assert await world.after(3600) is None
    assert await world.exists() is (expected is None)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"managed_by": "kueue.x-k8s.io/multikueue"}, id="another controller manages it"),
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
    job = await world.get(TrainJob, KEY)
    job.metadata.finalizers = ["example.com/kept"]
    await world.update(job)
    await world.after(10)
    assert await world.after(11) is None
    assert len(world.options) == 1


async def test_without_its_runtime_a_train_job_is_kept_until_the_runtime_returns() -> None:
    world = World(default=10)
    await world.delete(world.runtime)
    world.options.clear()
    assert await world.after(3600) is None
    assert await world.exists()


async def test_a_runtime_that_cannot_be_read_is_an_error_and_not_a_runtime_without_a_policy() -> None:
    world = World(default=10)
    get = world.get

    async def degraded(kind: Any, key: Any, **options: Any) -> Any:
        if kind is ClusterTrainingRuntime:
            raise CacheDegradedError(kind.gvk, "denied")
        return await get(kind, key, **options)

    world.get = degraded  # type: ignore[method-assign]
    with pytest.raises(CacheDegradedError):
        await world.after(3600)
    assert await world.exists()


@pytest.mark.parametrize("at", ["2030-01-01T01:00:00Z", "9999-12-31T23:59:59Z"])
async def test_a_train_job_that_seems_to_finish_in_the_future_waits_for_the_clock(at: str) -> None:
    world = World(2147483647 if at.startswith("9999") else 120, at=at)
    left = await world.after(0)
    assert left is not None
    assert left >= 3600 + 60
    assert await world.exists()


async def test_after_a_jump_of_the_clock_the_deletion_is_not_early() -> None:
    world = World(100)
    assert await world.after(-50) == 90
    assert await world.after(-3600) == 3640
    assert await world.exists()
    assert await world.after(1e6) is None
    assert not await world.exists()


async def test_a_longer_time_that_the_cache_has_not_seen_yet_counts() -> None:
    world = World(10)
    stale = await world.get(TrainJob, KEY)
    job = await world.get(TrainJob, KEY)
    job.spec.ttl_seconds_after_finished = 1000
    await world.update(job)
    cache = FakeClient(stale, world.runtime)
    recorder: Any = world
    world.controller = TTLAfterFinished(cache, recorder, reader=world, now=lambda: world.clock)
    assert await world.after(20) == 920
    assert await world.exists()


async def test_a_train_job_that_changes_during_the_deletion_is_judged_again() -> None:
    class Racing(World):
        async def delete(self, obj: Object, **options: Any) -> None:
            job = await self.get(TrainJob, KEY)
            job.spec.ttl_seconds_after_finished = 1000
            await self.update(job)
            await super().delete(obj, **options)

    world = Racing(10)
    assert await world.after(20) == 1
    assert await world.exists()
    assert await world.after(21) == 919


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (StatusError("no", code=500, reason="InternalError"), "no"),
        (
            ForbiddenError("no", code=403, reason="Forbidden"),
            "no. The feature gate TTLAfterFinished needs the role in config/ttl-after-finished",
        ),
    ],
)
async def test_a_refused_deletion_is_reported_and_tried_again(refusal: StatusError, hint: str) -> None:
    world = World(0)
    world.refusal = refusal
    with pytest.raises(type(refusal)):
        await world.after(5)
    text = "TrainJob, which should be deleted since 2030-01-01T00:00:00Z, cannot be deleted: "
    assert world.events == [("Warning", "TrainJobDeletionFailed", text + hint)]
    world.refusal = None
    assert await world.after(6) is None
    assert not await world.exists()


async def test_a_changed_policy_of_a_runtime_enqueues_its_finished_train_jobs() -> None:
    world = World()
    running = make_train_job(KEY[0], "running")
    await world.create(running)
    listed: list[dict[str, Any]] = []

    async def by_index(kind: Any, **options: Any) -> Any:
        listed.append(options)
        return await FakeClient.list(world, kind, namespace=options["namespace"])

    world.list = by_index  # type: ignore[method-assign]
    assert await world.controller._followers(world.runtime) == [Request(*KEY)]
    assert [each["fields"] for each in listed] == [
        {".spec.runtimeRef.kind=clusterTrainingRuntime": "runtime"}
    ]
