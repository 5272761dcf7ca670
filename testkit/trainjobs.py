# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs, their runtimes and their reconciler, with an in-memory API server.

The server can behave as if JobSet's webhooks and controller were installed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import anyio
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.client import interceptor
from controller_runtime.fake import Call, FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.reconcile import Request, Result
from controller_runtime.recorder import Broadcaster, SourceRecorder
from controller_runtime.simtest import Review

from pkg import features
from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.runtime import Runtime, core
from pkg.runtime.framework.plugins.workload import Published
from pkg.webhooks import TrainJobDefaulter
from testkit.builders import make_ended_status, train_job_document, written_cluster_runtime
from testkit.jobset import report, review_job_set
from testkit.recorder import Recorder

KEY = Request("ns", "job")


class Runnable(Protocol):
    """A runnable of a manager."""

    async def start(self) -> None: ...


R = TypeVar("R", bound=Runnable)


class Server(FakeClient):
    """An API server, optionally with JobSet's webhooks. A deleted JobSet stays until ``collect`` removes it."""

    webhook = True
    role_may_delete = True

    def __init__(self, *objects: Object, now: Callable[[], datetime]) -> None:
        super().__init__(*objects, now=now)
        self.mutate: Callable[[dict[str, Any], bool], None] = lambda _spec, _create: None
        """Called with each JobSet's spec before it is stored, and with True if the JobSet is created."""
        self.refuse: Callable[[Object], Exception | None] = lambda _obj: None
        """Called with each applied object; the error that it returns is raised."""
        self._server.admit[JobSet.gvk] = [self._review]

    async def _review(self, review: Review) -> None:
        if review.new is not None and not review.subresource:
            self.mutate(review.new["spec"], review.operation == "CREATE")
            await review_job_set(review, webhook=self.webhook)

    async def apply(self, obj: Any, **options: Any) -> Any:
        if (error := self.refuse(obj)) is not None:
            raise error
        return await super().apply(obj, **options)

    async def delete(self, obj: Object, **options: Any) -> None:
        if isinstance(obj, JobSet) and not self.role_may_delete:
            self.record("delete", JobSet, obj.key)
            raise ForbiddenError("jobsets is forbidden: cannot delete", code=403, reason="Forbidden")
        await super().delete(obj, **options)

    async def unrecorded(self, call: Callable[..., Any], obj: Object) -> Any:
        """Make a call that is not recorded as the manager's."""
        before = len(self.calls)
        made = await call(obj)
        del self.calls[before:]
        return made

    async def observe(self, *, restarts: int = 0, **counts: int) -> None:
        """Count the Jobs and restarts in the status, as JobSet's controller does."""
        job_set = await self.get(JobSet, KEY)
        jobs = {job.name: counts for job in job_set.spec.replicated_jobs or ()}
        await report(self, job_set.to_dict(), jobs, restarts=restarts)

    async def collect(self) -> None:
        """Remove the deleted JobSet, as the garbage collector does once its Jobs are deleted."""
        assert (await self.get(JobSet, KEY)).metadata.deletion_timestamp
        self.collect_garbage()


START = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


class ReconcilerWorld:
    """A reconciler with the real plugins over a Server; its clock follows the event loop's, and can be set."""

    def __init__(self, *objects: Object) -> None:
        self.now = START
        self.server = Server(*objects, now=self.clock)
        self.events = FakeClient(now=self.clock)
        """The events of the runnables of :meth:`leading`, and of other controllers."""
        self.recorder = Recorder()
        self.result = Result()
        self.published: Published | None = None
        """The schemas that the server publishes; None for the newest gang API."""
        self.cfg = defaulted()
        """The manager's Configuration from the next restart on."""
        self.mutating = True
        """True if the mutating webhook is installed."""

    @property
    def now(self) -> datetime:
        return self._set + timedelta(seconds=anyio.current_time() - self._set_at)

    @now.setter
    def now(self, now: datetime) -> None:
        self._set, self._set_at = now, anyio.current_time()

    def clock(self) -> datetime:
        return self.now

    @asynccontextmanager
    async def leading(self, make: Callable[[SourceRecorder], R]) -> AsyncIterator[R]:
        """Run a runnable that records events, as the leader does; a second call is another replica that leads."""
        broadcaster = Broadcaster(self.events, now=self.clock)
        runnable = make(broadcaster.recorder_for("trainer-trainjob-controller"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broadcaster.start)
            tasks.start_soon(runnable.start)
            yield runnable
            tasks.cancel_scope.cancel()

    async def restart(
        self,
        through: interceptor.Funcs | None = None,
        *,
        store: FakeClient | None = None,
        runtimes: Mapping[str, Runtime] | None = None,
        **options: Any,
    ) -> None:
        """Replace the reconciler by one without state, with new runtimes unless some are given.

        Its calls go ``through`` functions, if any are given.
        """
        client = self.server if through is None else interceptor.wrap(self.server, through)
        self.runtimes = runtimes or await core.new(
            client, FakeClient(), cfg=self.cfg, published=self.published, store=store
        )
        gates = features.resolve(self.cfg.feature_gates or {})
        options["count_attempts"] = gates.enabled(features.EXECUTION_ATTEMPTS)
        self.reconciler = TrainJobReconciler(client, self.recorder, self.runtimes, now=self.clock, **options)

    async def writes(self, key: Request = KEY) -> list[str]:
        """Reconcile once; return the writes, with dry runs marked."""
        before = len(self.server.calls)
        self.result = await self.reconciler.reconcile(key)
        return [written(call) for call in self.server.calls[before:] if call.is_write]

    async def reconcile(self) -> list[str]:
        """Reconcile once; return the writes except those of status."""
        return [each for each in await self.writes() if "/" not in each]

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Return the status and the reason of each condition of the TrainJob."""
        job = await self.server.get(TrainJob, KEY)
        return {each.type: (each.status, each.reason) for each in job.status.conditions or ()}

    async def finish(self, condition: str, **status: Any) -> None:
        """End the JobSet as JobSet's controller does."""
        job_set = await self.server.get(JobSet, KEY)
        job_set.status = make_ended_status(condition, **status)
        await self.server.status.update(job_set)

    async def train_job(self, change: Callable[[TrainJob], None]) -> None:
        job, before = await self.server.get(TrainJob, KEY), await self.server.get(TrainJob, KEY)
        change(job)
        if self.mutating:
            await TrainJobDefaulter(self.cfg).mutate(AdmissionRequest(uid="u"), before, job)
        await self.server.update(job)

    async def suspend(self, suspend: bool) -> None:
        await self.train_job(lambda job: setattr(job.spec, "suspend", suspend))

    async def edit_image(self, image: str = "two") -> None:
        await self.train_job(lambda job: setattr(job.spec.trainer, "image", image))

    async def edit_nodes(self, nodes: int) -> None:
        await self.train_job(lambda job: setattr(job.spec.trainer, "num_nodes", nodes))

    async def replace_overrides(self, overrides: list[dict[str, Any]]) -> None:
        made = train_job(podTemplateOverrides=overrides).spec.pod_template_overrides
        await self.train_job(lambda job: setattr(job.spec, "pod_template_overrides", made))

    async def job_set(self) -> dict[str, Any]:
        return (await self.server.get(JobSet, KEY)).to_dict()

    async def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = (await self.job_set())["spec"]["replicatedJobs"][-1]["template"]["spec"][
            "template"
        ]["spec"]
        return spec

    async def image(self) -> str:
        return str((await self.pod())["containers"][0]["image"])

    async def rebuilt(self) -> list[str]:
        """Run the garbage collector, then reconcile."""
        await self.server.collect()
        return await self.reconcile()


def written(call: Call) -> str:
    how = " dry run" if call.options.get("dry_run") else ""
    return f"{call.verb} {'/'.join(filter(None, (call.kind.kind, call.subresource)))}{how}"


def runtime(**spec: Any) -> ClusterTrainingRuntime:
    container = {"name": "node", "image": "base", "resources": {"requests": {"cpu": "1"}}}
    return written_cluster_runtime("rt", pod={"containers": [container]}, **spec)


PLAIN = {"mlPolicy": {"numNodes": 2}}
GANG = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 9}}}
VOLCANO = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"volcano": {}}}
WORKLOAD = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"workload": {}}}
MPI = {"mlPolicy": {"numNodes": 2, "mpi": {}}}
FLUX = {"mlPolicy": {"numNodes": 2, "flux": {}}}


def train_job(
    name: str = "job", *, metadata: dict[str, Any] | None = None, status: Any = None, **spec: Any
) -> TrainJob:
    """Return a TrainJob with two nodes and the runtime ``rt``; ``spec`` has fields by their JSON names."""
    spec = {"trainer": {"image": "one", "numNodes": 2}, "suspend": False, **spec}
    metadata = {"uid": f"uid-{name}", "generation": 1, **(metadata or {})}
    document = train_job_document(
        "ns", "rt", name=name, kind=ClusterTrainingRuntime.gvk.kind, metadata=metadata, **spec
    )
    return TrainJob.from_dict(document | ({"status": status} if status else {}))


def ended_condition(kind: str = "Complete") -> dict[str, Any]:
    """Return the status of a TrainJob that has ended."""
    return {"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m"}]}


async def world(
    policy: dict[str, Any] = PLAIN, *objects: Object, webhook: bool = True, **spec: Any
) -> ReconcilerWorld:
    made = ReconcilerWorld(runtime(**policy), train_job(**spec), *objects)
    made.server.webhook = webhook
    await made.restart()
    return made


async def built_world(policy: dict[str, Any] = PLAIN, **spec: Any) -> ReconcilerWorld:
    """Return a world with a TrainJob that has its children."""
    w = await world(policy, **spec)
    await w.reconcile()
    return w


async def running_world(policy: dict[str, Any] = PLAIN, **spec: Any) -> ReconcilerWorld:
    """Return a world with a TrainJob whose JobSet has an active Job."""
    w = await built_world(policy, **spec)
    await w.server.observe(active=1)
    return w


async def suspended_world(
    policy: dict[str, Any] = PLAIN, *, webhook: bool = True, **spec: Any
) -> ReconcilerWorld:
    """Return a world with a suspended TrainJob that has its children, and whose JobSet has a status with its Jobs."""
    w = await built_world(policy, webhook=webhook, suspend=True, **spec)
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    return w


def never_runs(w: ReconcilerWorld, image: str) -> None:
    """Assert that no request would run a JobSet with this image."""
    for call in w.server.calls:
        if call.kind == JobSet.gvk and call.verb == "apply" and call.body["spec"].get("suspend") is False:
            assert f"'image': '{image}'" not in str(call.body)
