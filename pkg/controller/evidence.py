# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Records failed containers in events on the TrainJob, because a failed Job may delete its pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import anyio
from controller_runtime import client, log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheDegradedError, CacheError
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.lru import LRU
from controller_runtime.recorder import SourceRecorder
from controller_runtime.rest import RestError

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import (
    JOB_SET_NAME_KEY,
    JOB_SET_UID_KEY,
    RESTARTS_KEY,
    JobSet,
)
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob
from pkg.why import LiveObject
from pkg.why.terminations import REASON, terminations

# +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

MAX_FAILURES: Final = 5
"""Maximum number of events about one run of a JobSet. In distributed training, one failed pod makes the others fail."""
_FAILED: Final = {"status.phase": "Failed"}
_PAGE: Final = 100
_RETRY: Final = 10.0
_REMEMBERED: Final = 4096
"""Maximum number of runs of JobSets whose events are remembered. A forgotten event is sent again, and then refused."""
_RECENT: Final = timedelta(minutes=10)
"""How long after the end of a TrainJob its listed pods are recorded: the watch may have been broken when they failed.
Later, the first event may have expired, and would be recorded again.
"""

_log = log.logger_from("evidence")


class Pods(client.Reader, client.Watcher, Protocol):
    """Lists and watches pods, as the live client does."""


class FailureEvidence:
    """A runnable of the leader: watches the failed pods of JobSets, and records an event for each failed container.

    Pods that run or succeed are never received, and no pod is kept. Containers of one step that fail in the same way in
    one run of a JobSet share an event. The event's name is derived from the data that these containers have in common,
    so the event exists only once, even if the manager restarts.
    """

    name = "evidence of failed pods"

    def __init__(
        self,
        pods: Pods,
        reader: client.Reader,
        recorder: SourceRecorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pods = pods
        self._reader = reader
        self._recorder = recorder
        self._now = now
        self._recorded: LRU[tuple[str, str], set[str]] = LRU(_REMEMBERED)
        """The failures for which an event was recorded. The keys are the TrainJob's UID and the run of its JobSet."""
        self._problem = ""

    def remark(self) -> str | None:
        """Return a remark for readiness if the permission to watch failed pods is missing, otherwise None."""
        return f"failures of pods are not recorded: {self._problem}" if self._problem else None

    def degraded(self) -> Mapping[GVK, str]:
        """Return the kind Pod and the reason if the permission to watch failed pods is missing, otherwise nothing."""
        return {Pod.gvk: self._problem} if self._problem else {}

    async def start(self) -> None:
        """Record failures until cancelled.

        If the watch ends or is forbidden, or if TrainJobs or JobSets cannot be read, list the failed pods again
        after some seconds.
        """
        with metrics.KIND_DEGRADED.of(self.degraded):
            try:
                while True:
                    try:
                        await self._watch_failures()
                    except (StatusError, RestError, CacheDegradedError) as error:
                        _log.debug("Failed pods cannot be watched", error=error)
                        self._problem = (
                            str(error) if isinstance(error, StatusError) and error.code == 403 else ""
                        )
                    await anyio.sleep(_RETRY)
            finally:
                self._problem = ""

    async def _watch_failures(self) -> None:
        """Handle the pods that have already failed, then each further pod that fails, until the watch ends."""
        token = version = ""
        while True:
            page = await self._pods.list(
                Pod, labels=JOB_SET_NAME_KEY, fields=_FAILED, limit=_PAGE, continue_token=token
            )
            self._problem = ""
            for pod in page:
                await self._handle(pod, is_new=False)
            token, version = page.continue_token, page.resource_version
            if not token:
                break
        async with self._pods.watch(
            Pod, labels=JOB_SET_NAME_KEY, fields=_FAILED, resource_version=version
        ) as events:
            async for event in events:
                if event.type == "ADDED":  # a pod that fails begins to match the selector
                    await self._handle(event.object, is_new=True)

    async def _handle(self, pod: Pod, *, is_new: bool) -> None:
        """Record the failures of a pod. Listed pods of a TrainJob that finished long ago are skipped.

        Raises:
            CacheDegradedError: TrainJobs or JobSets cannot be read now.
        """
        failures = list(terminations(LiveObject(pod.to_dict())))
        if not failures:
            return
        owner = await self._owner(pod)
        if owner is None:
            return
        if not is_new and trainjob.is_finished(owner):
            finished = trainjob.finished_at(owner)
            if finished is None or self._now() - finished > _RECENT:
                return
        attempt = (pod.metadata.labels or {}).get(RESTARTS_KEY, "")
        run = owner.metadata.uid or "", attempt
        recorded = self._recorded.use(run)
        if recorded is None:
            recorded = self._recorded[run] = set()
        for each in failures:
            key = f"{attempt}/{each.step}/{each.container}/{each.exit_code}/{each.reason}"
            if key not in recorded and len(recorded) < MAX_FAILURES:
                recorded.add(key)
                self._recorder.event_once(owner, "Warning", REASON, str(each), key=key)

    async def _owner(self, pod: Pod) -> TrainJob | None:
        """Return the TrainJob to which the pod belongs according to its labels, or None.

        Raises:
            CacheDegradedError: TrainJobs or JobSets cannot be read now.
        """
        labels = pod.metadata.labels or {}
        key = NamespacedName(pod.metadata.namespace or "", labels.get(JOB_SET_NAME_KEY, ""))
        try:
            job_set = (await client.peek(self._reader, JobSet, key)).object
            owner = (await client.peek(self._reader, TrainJob, key)).object
        except CacheDegradedError:
            raise
        except (NotFoundError, CacheError):
            return None
        controller = trainjob.controller_of(job_set)
        if controller is None or controller.uid != owner.metadata.uid or not trainjob.is_ours(owner):
            return None
        return owner if labels.get(JOB_SET_UID_KEY, job_set.metadata.uid) == job_set.metadata.uid else None
