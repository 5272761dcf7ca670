# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob, its runtime and its reconciler with the real plugins, over the server of ``jobset_server``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client.fake import Call, FakeClient
from controller_runtime.reconcile import Result
from jobset_server import KEY, Server

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.runtime import core
from pkg.runtime.framework.plugins.workload import Published
from pkg.webhooks import TrainJobDefaulter

START = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        del obj
        self.events.append(f"{event_type} {reason}: {message}")


class World:
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
        """Whether the mutating webhook is installed."""

    async def restart(self) -> None:
        """Replace the reconciler by one without state."""
        runtimes = await core.new(self.server, FakeClient(), cfg=self.cfg, published=self.published)
        self.reconciler = TrainJobReconciler(self.server, self.recorder, runtimes, now=lambda: self.now)

    async def reconcile(self) -> list[str]:
        """Reconcile once; return the writes to children, with dry runs and refusals marked."""
        before = len(self.server.calls)
        self.result = await self.reconciler.reconcile(KEY)
        return [
            written(call) for call in self.server.calls[before:] if call.is_write and call.subresource == ""
        ]

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
    return f"{call.verb} {call.kind.kind}{how}"


def runtime(*jobs: str, **spec: Any) -> ClusterTrainingRuntime:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    resources = {"requests": {"cpu": "1"}}
    replicated = [
        {
            "name": name,
            "template": {
                "metadata": {"labels": labels} if name in ("node", "launcher") and name == jobs[0] else {},
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "node", "image": "base", "resources": resources}]}
                    }
                },
            },
        }
        for name in jobs
    ]
    template = {"spec": {"replicatedJobs": replicated}}
    return ClusterTrainingRuntime.from_dict(
        {"metadata": {"name": "rt"}, "spec": {"template": template, **spec}}
    )


PLAIN = {"mlPolicy": {"numNodes": 2}}
GANG = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 9}}}
VOLCANO = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"volcano": {}}}
WORKLOAD = {"mlPolicy": {"numNodes": 2}, "podGroupPolicy": {"workload": {}}}
MPI = {"mlPolicy": {"numNodes": 2, "mpi": {}}}
FLUX = {"mlPolicy": {"numNodes": 2, "flux": {}}}


def train_job(**spec: Any) -> TrainJob:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "rt"}
    trainer = {"image": "one", "numNodes": 2}
    return TrainJob.from_dict(
        {
            "metadata": {"name": "job", "namespace": "ns", "uid": "uid-job", "generation": 1},
            "spec": {"runtimeRef": ref, "trainer": trainer, "suspend": False, **spec},
        }
    )


async def world(policy: dict[str, Any] = PLAIN, *objects: Object, webhook: bool = True, **spec: Any) -> World:
    jobs = ("launcher", "node") if "mpi" in policy.get("mlPolicy", {}) else ("node",)
    made = World(runtime(*jobs, **policy), train_job(**spec), *objects)
    made.server.webhook = webhook
    await made.restart()
    return made


async def suspended_world(policy: dict[str, Any] = PLAIN, *, webhook: bool = True, **spec: Any) -> World:
    """Return a world whose suspended TrainJob has its children, observed by JobSet's controller."""
    w = await world(policy, webhook=webhook, suspend=True, **spec)
    await w.reconcile()
    await w.server.observe(suspended=1)
    assert await w.reconcile() == []
    return w


def never_runs(w: World, image: str) -> None:
    """Assert that no request would run a JobSet with this image."""
    for call in w.server.calls:
        if call.kind == JobSet.gvk and call.verb == "apply" and call.body["spec"].get("suspend") is False:
            assert f"'image': '{image}'" not in str(call.body)
