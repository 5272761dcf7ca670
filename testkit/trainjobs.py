# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs, their runtimes and their reconciler, with an in-memory API server.

The server can behave as if JobSet's webhooks and controller were installed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.client import interceptor
from controller_runtime.fake import Call, FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.reconcile import Request, Result

from pkg import features
from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.runtime import core
from pkg.runtime.framework.plugins.workload import Published
from pkg.webhooks import TrainJobDefaulter
from testkit.builders import make_ended_status, train_job_document, written_runtime
from testkit.jobsetwebhook import is_allowed, set_defaults

T = TypeVar("T", bound=Object)
KEY = Request("ns", "job")
IMMUTABLE = (
    'admission webhook "vjobset.kb.io" denied the request: '
    "spec.replicatedJobs: Invalid value: []: field is immutable"
)


class Server(FakeClient):
    """An API server, optionally with JobSet's webhooks. A deleted JobSet stays until ``collect`` removes it."""

    webhook = True
    role_may_delete = True

    def __init__(self, *objects: Object, now: Callable[[], datetime]) -> None:
        super().__init__(*objects, now=now)
        self.mutate: Callable[[dict[str, Any], bool], None] = lambda _spec, _create: None

    async def apply(self, obj: T, **options: Any) -> T:
        live = self._stored(obj)
        if isinstance(obj, JobSet):
            obj = self._admitted(obj, live)
        if live is not None and isinstance(obj, JobSet) and self.webhook:
            preview = await self.unrecorded(super().apply, obj, options | {"dry_run": True})
            if not is_allowed(live["spec"], preview.to_dict()["spec"]):
                self.record("apply", type(obj), obj.key, obj.to_dict(), options={"refused": True, **options})
                raise ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")
        return await super().apply(obj, **options)

    def _stored(self, obj: Object) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = self.table(type(obj)).find(obj.key).document
        except NotFoundError:
            return None
        return document

    def _admitted(self, obj: Any, live: dict[str, Any] | None) -> Any:
        """Return the object with the defaults of the webhook and the CRD."""
        wire = obj.to_dict()
        spec = wire["spec"]
        set_defaults(spec, webhook=self.webhook)
        self.mutate(spec, live is None)
        return JobSet.from_dict(wire)

    async def delete(self, obj: Object, **options: Any) -> None:
        if not isinstance(obj, JobSet) or options.get("propagation") != "Foreground":
            return await super().delete(obj, **options)
        if not self.role_may_delete:
            self.record("delete", type(obj), obj.key)
            raise ForbiddenError("jobsets is forbidden: cannot delete", code=403, reason="Forbidden")
        self.record("delete", JobSet, obj.key)
        await self.unrecorded(super().delete, obj, options | {"dry_run": True})
        held = (await self.get(JobSet, obj.key)).deep_copy()
        held.metadata.finalizers = ["foregroundDeletion"]
        await self.unrecorded(super().delete, await self.unrecorded(self.update, held))
        return None

    async def unrecorded(self, call: Callable[..., Any], obj: Object, options: Any = None) -> Any:
        """Make a call that is not recorded as the manager's."""
        before = len(self.calls)
        made = await call(obj, **(options or {}))
        del self.calls[before:]
        return made

    async def observe(self, *, restarts: int = 0, **counts: int) -> None:
        """Count the Jobs and restarts in the status, as JobSet's controller does."""
        job_set = await self.get(JobSet, KEY)
        jobs = [
            {
                "name": job.name,
                **dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0),
                **counts,
            }
            for job in job_set.spec.replicated_jobs or ()
        ]
        job_set.status = job_set.status.from_dict({"restarts": restarts, "replicatedJobsStatus": jobs})
        await self.status.update(job_set)

    async def collect(self) -> None:
        """Remove the deleted JobSet, as the garbage collector does once its Jobs are deleted."""
        job_set = await self.get(JobSet, KEY)
        assert job_set.metadata.deletion_timestamp
        job_set.metadata.finalizers = []
        self.storage.drop(self.table(JobSet), KEY, job_set.to_dict())


START = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        del obj
        self.events.append(f"{event_type} {reason}: {message}")


class ReconcilerWorld:
    """A reconciler with the real plugins over a Server."""

    def __init__(self, *objects: Object) -> None:
        self.now = START
        self.server = Server(*objects, now=lambda: self.now)
        self.recorder = Recorder()
        self.result = Result()
        self.published: Published | None = None
        """The schemas that the server publishes; None for the newest gang API."""
        self.cfg = defaulted()
        """The manager's Configuration from the next restart on."""
        self.mutating = True
        """True if the mutating webhook is installed."""

    async def restart(
        self, through: interceptor.Funcs | None = None, *, store: FakeClient | None = None, **options: Any
    ) -> None:
        """Replace the reconciler by one without state. Its calls go ``through`` functions, if any are given."""
        client = self.server if through is None else interceptor.wrap(self.server, through)
        runtimes = await core.new(client, FakeClient(), cfg=self.cfg, published=self.published, store=store)
        gates = features.resolve(self.cfg.feature_gates or {})
        options["count_attempts"] = gates.enabled(features.EXECUTION_ATTEMPTS)
        self.reconciler = TrainJobReconciler(client, self.recorder, runtimes, now=lambda: self.now, **options)

    async def writes(self, key: Request = KEY) -> list[str]:
        """Reconcile once; return the writes, with dry runs and refusals marked."""
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
    how = " dry run" if call.options.get("dry_run") else " refused" if call.options.get("refused") else ""
    return f"{call.verb} {'/'.join(filter(None, (call.kind.kind, call.subresource)))}{how}"


def runtime(**spec: Any) -> ClusterTrainingRuntime:
    container = {"name": "node", "image": "base", "resources": {"requests": {"cpu": "1"}}}
    made = written_runtime("", pod={"containers": [container]}, **spec)
    return ClusterTrainingRuntime.from_dict({"metadata": {"name": "rt"}, "spec": made.to_dict()["spec"]})


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


async def suspended_world(
    policy: dict[str, Any] = PLAIN, *, webhook: bool = True, **spec: Any
) -> ReconcilerWorld:
    """Return a world with a suspended TrainJob that has its children, and whose JobSet has a status with its Jobs."""
    w = await world(policy, webhook=webhook, suspend=True, **spec)
    await w.reconcile()
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    return w


def never_runs(w: ReconcilerWorld, image: str) -> None:
    """Assert that no request would run a JobSet with this image."""
    for call in w.server.calls:
        if call.kind == JobSet.gvk and call.verb == "apply" and call.body["spec"].get("suspend") is False:
            assert f"'image': '{image}'" not in str(call.body)
