# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server in memory that behaves like one with JobSet's webhooks, JobSet's controller and a garbage collector."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from controller_runtime.apis.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client.fake import FakeClient
from controller_runtime.reconcile import Request

from pkg.apis.jobset.v1alpha2 import JobSet

T = TypeVar("T", bound=Object)
KEY = Request("ns", "job")
IMMUTABLE = (
    'admission webhook "vjobset.kb.io" denied the request: '
    "spec.replicatedJobs: Invalid value: []: field is immutable"
)


def scheduling_removed(spec: dict[str, Any]) -> Any:
    jobs = copy.deepcopy(spec.get("replicatedJobs") or [])
    for job in jobs:
        pod = job["template"]["spec"]["template"]
        for field in ("labels", "annotations"):
            pod.get("metadata", {}).pop(field, None)
        for field in ("nodeSelector", "tolerations", "schedulingGates"):
            pod.get("spec", {}).pop(field, None)
    return jobs


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
            preview = await self.quietly(super().apply, obj, options | {"dry_run": True})
            before, after = live["spec"], preview.to_dict()["spec"]
            mutable = before.get("suspend") or after.get("suspend")
            strip: Callable[[Any], Any] = (
                scheduling_removed if mutable else lambda spec: spec["replicatedJobs"]
            )
            if strip(before) != strip(after):
                self._log("apply", type(obj), obj.key, obj.to_dict(), options={"refused": True, **options})
                raise ForbiddenError(IMMUTABLE, code=403, reason="Forbidden")
        return await super().apply(obj, **options)

    def _stored(self, obj: Object) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = self._table(type(obj)).find(obj.key).document
        except NotFoundError:
            return None
        return document

    def _admitted(self, obj: Any, live: dict[str, Any] | None) -> Any:
        """Return the object with the defaults of the webhook and the CRD."""
        wire = obj.to_dict()
        spec = wire["spec"]
        if self.webhook:
            spec.setdefault("network", {}).setdefault("enableDNSHostnames", True)
            spec["network"].setdefault("publishNotReadyAddresses", True)
            spec.setdefault("successPolicy", {"operator": "All"})
            spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
        for job in spec["replicatedJobs"]:
            job.setdefault("groupName", "default")
            job.setdefault("replicas", 1)
            if self.webhook:
                job["template"]["spec"].setdefault("completionMode", "Indexed")
                job["template"]["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
        self.mutate(spec, live is None)
        return JobSet.from_dict(wire)

    async def delete(self, obj: Object, **options: Any) -> None:
        if not isinstance(obj, JobSet) or options.get("propagation") != "Foreground":
            return await super().delete(obj, **options)
        if not self.role_may_delete:
            self._log("delete", type(obj), obj.key)
            raise ForbiddenError("jobsets is forbidden: cannot delete", code=403, reason="Forbidden")
        self._log("delete", JobSet, obj.key)
        await self.quietly(super().delete, obj, options | {"dry_run": True})
        held = (await self.get(JobSet, obj.key)).deep_copy()
        held.metadata.finalizers = ["foregroundDeletion"]
        await self.quietly(super().delete, await self.quietly(self.update, held))
        return None

    async def quietly(self, call: Callable[..., Any], obj: Object, options: Any = None) -> Any:
        """Make a call that is not counted as the manager's."""
        before = len(self.calls)
        made = await call(obj, **(options or {}))
        del self.calls[before:]
        return made

    async def observe(self, **counts: int) -> None:
        """Count the Jobs in the status, as JobSet's controller does."""
        job_set = await self.get(JobSet, KEY)
        jobs = [
            {
                "name": job.name,
                **dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0),
                **counts,
            }
            for job in job_set.spec.replicated_jobs or ()
        ]
        job_set.status = job_set.status.from_dict({"restarts": 0, "replicatedJobsStatus": jobs})
        await self.status.update(job_set)

    async def collect(self) -> None:
        """Remove the deleted JobSet, as the garbage collector does once its Jobs are deleted."""
        job_set = await self.get(JobSet, KEY)
        assert job_set.metadata.deletion_timestamp
        job_set.metadata.finalizers = []
        self.memory._drop(self._table(JobSet), KEY, job_set.to_dict())
