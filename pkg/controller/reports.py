# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events and log lines about the life of a TrainJob.

An event about a lasting state is recorded once for each cause, and once more after a restart of the manager. A TrainJob
that has not started in time gets one Warning event, which names the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import anyio
from controller_runtime import client, log
from controller_runtime.apis.core.v1 import Event
from controller_runtime.cache import CacheError
from controller_runtime.machinery import NamespacedName, Object, conditions
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.goduration import format_duration
from controller_runtime.machinery.meta import parse_time
from controller_runtime.machinery.printable import printable_line
from controller_runtime.recorder import EventRecorder, SourceRecorder
from controller_runtime.rest import RestError

from pkg.apis.jobset.v1alpha2 import JOB_SET_NAME_KEY, JobSet
from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup as CoschedulingGroup
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.apis.volcano.v1beta1 import KUBE_GROUP_NAME_ANNOTATION_KEY
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoGroup
from pkg.runtime import Runtime, runtime_ref_to_runtime_registry_key
from pkg.util import trainjob

from .applier import Memories, cached_kind

LONG: Final = timedelta(seconds=60)
"""A deletion that takes longer than this is reported. By default, pods have 30 seconds to terminate."""
_MESSAGE_LIMIT: Final = 1000
_OUTCOMES: Final = {
    trainer.TRAIN_JOB_COMPLETE: "TrainJob Complete",
    trainer.TRAIN_JOB_FAILED: "TrainJob Failed",
    trainer.TRAIN_JOB_SUSPENDED: "TrainJob Suspended",
    trainer.TRAIN_JOB_RESUMED_REASON: "TrainJob Resumed",
}
NOT_STARTED_REASON: Final = "TrainJobNotStarted"
_NOT_STARTED: Final = "TrainJob has not started for {:g}s: {}. To see more: trainerctl why {} -n {}"
_CAUSE_LIMIT: Final = 800
_UNREADABLE: Final = (StatusError, RestError, CacheError)
_MOST_PODS: Final = 200
"""Maximum number of pods that are read for one report."""
_NOT_CACHED: Final = "the manager does not cache them"
_EVENTS_TIME: Final = 1.0
"""Seconds in which the API server delivers the existing events of one watch."""
_LATE: Final = 10.0
"""If a report is late by so many seconds, because many TrainJobs are reported, no events are read for it."""

_log = log.logger_from("starts")


class Reports:
    """Records Warning events about lasting states, and remembers which events were recorded."""

    def __init__(
        self,
        reader: client.Reader,
        recorder: EventRecorder,
        now: Callable[[], datetime],
        memories: Memories,
    ) -> None:
        self._reader = reader
        self._recorder = recorder
        self._now = now
        self._memories = memories

    def deletion(self, train_job: TrainJob, live: Object) -> None:
        """Report a child whose deletion takes longer than ``LONG``, for example because of its finalizers.

        A child without a deletion timestamp belongs to an earlier TrainJob of the same name. In this case, the wait
        began when ``train_job`` was created.
        """
        since = live.metadata.deletion_timestamp or train_job.metadata.creation_timestamp
        if since is None or self._now() - parse_time(since) < LONG:
            return
        message = f"Waiting for the deletion of {live.gvk.kind} {live.key}"
        if live.metadata.deletion_timestamp is None:
            message += " of an earlier TrainJob of this name: the garbage collector has not deleted it"
        else:
            message += f"; its finalizers: {', '.join(live.metadata.finalizers or ()) or 'none'}"
        self._report(train_job, "WaitingForDeletion", {live.metadata.uid or "": message})

    async def missing(self, train_job: TrainJob, live: JobSet, wanted: Iterable[Object]) -> None:
        """Report the ``wanted`` siblings of a running JobSet that do not exist.

        A missing sibling is not created, because it would be built from a newer spec than the JobSet.

        Raises:
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        missing: dict[str, str] = {}
        for each in wanted:
            try:
                await client.peek(self._reader, cached_kind(each), each.key)
            except NotFoundError:
                missing[f"{each.gvk.kind} {each.key} {live.metadata.uid}"] = (
                    f"{each.gvk.kind} {each.key} is missing. The TrainJob or its runtime has changed since JobSet "
                    f"{live.key} started, so a new one would not fit it: suspend the TrainJob and resume it"
                )
        self._report(train_job, "ChildNotRecreated", missing)

    async def gang(self, runtime: Runtime, train_job: TrainJob) -> None:
        """If the TrainJob's gang waits to be scheduled, report the reason."""
        waiting = None if train_job.spec.suspend else await runtime.why_waiting(train_job)
        causes: dict[str, str] = {}
        if waiting is not None:
            message = printable_line(f"{waiting.reason}: {waiting.message}")[:_MESSAGE_LIMIT]
            causes[f"{train_job.metadata.uid} {waiting.reason}"] = message
        self._report(train_job, "GangWaiting", causes)

    def _report(self, train_job: TrainJob, reason: str, causes: Mapping[str, str]) -> None:
        """Record an event for each cause, except causes that the previous call with this reason already had."""
        reported = self._memories[train_job.key].reported
        if not causes:
            reported.pop(reason, None)
            return
        for cause in causes.keys() - reported.get(reason, frozenset()):
            self._recorder.event(train_job, "Warning", reason, causes[cause])
        reported[reason] = frozenset(causes)


def log_outcome(before: TrainJob, after: TrainJob, job_set: JobSet | None, now: datetime) -> None:
    """Log one line if the new conditions of a TrainJob say that it has ended, was suspended or was resumed."""
    if before.status.conditions == after.status.conditions:  # most changes are changes of counts
        return
    for kind in (trainer.TRAIN_JOB_COMPLETE, trainer.TRAIN_JOB_FAILED, trainer.TRAIN_JOB_SUSPENDED):
        was, found = (conditions.is_true(each.status.conditions, kind) for each in (before, after))
        if found and not was:
            break
        if was and not found and kind == trainer.TRAIN_JOB_SUSPENDED:
            kind = trainer.TRAIN_JOB_RESUMED_REASON
            break
    else:
        return
    fields: dict[str, object] = {"after": _elapsed(after, now)}
    failed = conditions.find(after.status.conditions, trainer.TRAIN_JOB_FAILED)
    if failed is not None and kind == trainer.TRAIN_JOB_FAILED:
        fields |= {"reason": failed.reason, "message": failed.message}
    restarts = job_set.status.restarts if job_set is not None else None
    log.logger_from().info(_OUTCOMES[kind], **fields, restarts=restarts or 0)


def log_created(train_job: TrainJob, now: datetime) -> None:
    """Log that the children of a TrainJob were created for the first time."""
    if not train_job.status.jobs_status:
        log.logger_from().info("TrainJob Created", after=_elapsed(train_job, now))


def _elapsed(train_job: TrainJob, now: datetime) -> str:
    """Return the time since the creation as Go prints a duration: ``4m12s``."""
    created = train_job.metadata.creation_timestamp
    seconds = max(0, int((now - parse_time(created)).total_seconds())) if created else 0
    return format_duration(seconds * 10**9)


class _Waiting(NamedTuple):
    uid: str
    at: float
    """The time at which the TrainJob is reported, on the clock of the event loop."""


class Starts:
    """A runnable of the leader: reports each TrainJob that has not started after the time ``after``, in seconds.

    The time counts from the first reconcile in which the TrainJob should run. A TrainJob that starts in time costs only
    an entry in a table. Only the cache is read, except for a TrainJob that is reported: ``pods`` lists some of its
    pods, and ``events`` watches the events about Jobs or pods that it lacks. If ``pods`` is None, the manager may not
    list pods, and the numbers in the JobSet's status must do.
    """

    name = "reports of TrainJobs that have not started"

    def __init__(
        self,
        reader: client.Reader,
        recorder: SourceRecorder,
        after: float,
        *,
        runtimes: Mapping[str, Runtime] | None = None,
        pods: client.Reader | None = None,
        events: client.Watcher | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._reader = reader
        self._recorder = recorder
        self._after = after
        self._runtimes = runtimes or {}
        self._pods = pods
        self._events = events
        self._now = now
        self._waiting: dict[NamespacedName, _Waiting] = {}
        """Ordered by the time of the report."""
        self._reported: dict[NamespacedName, str] = {}
        """The UIDs of TrainJobs that were reported and have not started yet."""
        self._failing: set[NamespacedName] = set()
        self._added = anyio.Event()

    def observe(self, train_job: TrainJob, *, failing: bool = False) -> None:
        """Record the state of a TrainJob.

        If ``failing``, no event says that the TrainJob has not started: the controller already reports the error.
        """
        key, uid = train_job.key, train_job.metadata.uid or ""
        if not is_awaited(train_job):
            self.forget(key)
            return
        (self._failing.add if failing else self._failing.discard)(key)
        known = self._waiting.get(key)
        if self._reported.get(key) != uid and (known is None or known.uid != uid):
            self._wait(key, uid)

    def forget(self, key: NamespacedName) -> None:
        """Forget a TrainJob that has started or was deleted."""
        self._waiting.pop(key, None)
        self._reported.pop(key, None)
        self._failing.discard(key)

    async def start(self) -> None:
        """Report until cancelled."""
        while True:
            if not self._waiting:
                self._added = anyio.Event()
                await self._added.wait()
            key, mark = next(iter(self._waiting.items()))
            if (left := mark.at - anyio.current_time()) > 0:
                await anyio.sleep(left)
                continue
            del self._waiting[key]
            if key in self._failing:
                self._wait(key, mark.uid)
                continue
            self._reported[key] = mark.uid
            try:
                await self._report(key, reads_events=anyio.current_time() - mark.at < _LATE)
            except _UNREADABLE as error:
                _log.debug("TrainJob that has not started cannot be read", trainJob=str(key), error=error)
                if self._reported.pop(key, None) is not None:
                    self._wait(key, mark.uid)

    def _wait(self, key: NamespacedName, uid: str) -> None:
        self._waiting.pop(key, None)
        self._waiting[key] = _Waiting(uid, anyio.current_time() + self._after)
        self._added.set()

    async def _report(self, key: NamespacedName, *, reads_events: bool) -> None:
        """Record why a TrainJob has not started, unless it has started meanwhile."""
        train_job = (await client.peek(self._reader, TrainJob, key)).object
        if not is_awaited(train_job):
            return
        cause, summary = await self._why(train_job, reads_events=reads_events)
        shown = printable_line(summary)[:_CAUSE_LIMIT].rstrip(".")
        text = _NOT_STARTED.format(self._after, shown, key.name, key.namespace)
        self._recorder.event_once(train_job, "Warning", NOT_STARTED_REASON, text, key=cause)

    async def _why(self, train_job: TrainJob, *, reads_events: bool) -> tuple[str, str]:
        """Return the cause and its summary, from the objects that can be read."""
        from pkg import why  # most managers never need it
        from pkg.why import kinds

        objects: dict[str, list[why.LiveObject]] = {}
        try:
            job_set = (await client.peek(self._reader, JobSet, train_job.key)).object
        except NotFoundError:
            return "jobset-missing", "its JobSet has not been created"
        runtime = self._runtimes.get(runtime_ref_to_runtime_registry_key(train_job.spec.runtime_ref))
        gang = await runtime.why_waiting(train_job) if runtime is not None else None
        if gang is not None:
            return "gang-unschedulable", f"its gang is not scheduled: {' '.join(gang.message.split())}"
        refusal = await self._refusal(job_set) if reads_events else None
        if refusal is not None and refusal.involved_object is not None:
            finding = why.refused(refusal.message or "", why.LiveObject(refusal.involved_object.to_dict()))
            return finding.cause, finding.summary
        objects[kinds.JOB_SET] = [why.LiveObject(job_set.to_dict())]
        # Of a kind that is not in ``unread``, an object that the snapshot lacks counts as missing.
        read = {kinds.TRAIN_JOB, kinds.JOB_SET, *kinds.POD_GROUPS}
        unread = dict.fromkeys(kinds.VERSIONS.keys() - read, _NOT_CACHED)
        for kind in _groups_of(job_set):
            try:
                found = (await client.peek(self._reader, kind, train_job.key)).object
            except NotFoundError:
                continue
            except _UNREADABLE as error:  # pods may name the group of a scheduler that is not installed
                unread[str(kind.gvk.group_kind)] = str(error)
                continue
            objects[str(kind.gvk.group_kind)] = [why.LiveObject(found.to_dict())]
        if self._pods is not None:
            from controller_runtime.apis.core.v1 import Pod  # needed only here, and slow to load

            try:
                pods = await self._pods.list(
                    Pod,
                    namespace=train_job.namespace,
                    labels={JOB_SET_NAME_KEY: train_job.name},
                    limit=_MOST_PODS,
                )
                objects[kinds.POD] = [why.LiveObject(each.to_dict()) for each in pods]
                del unread[kinds.POD]
            except _UNREADABLE as error:
                unread[kinds.POD] = str(error)
        snapshot = why.Snapshot(why.LiveObject(train_job.to_dict()), self._now(), objects, unread)
        verdict = why.diagnose(snapshot)
        for finding in verdict.findings:
            if finding.cause != "unexplained":  # its summary is for users who may not read everything
                return finding.cause, finding.summary
        known = verdict.known[0] if verdict.known and objects.get(kinds.POD) else None
        return "unexplained", known or "no cause is visible to the manager"

    async def _refusal(self, job_set: JobSet) -> Event | None:
        """Return an event with the API server's text about the Jobs of a JobSet, or their pods, that it refuses.

        The manager may watch events, but not list them. A watch from the version "0" begins with the existing events.
        """
        if self._events is None or (since := job_set.metadata.creation_timestamp) is None:
            return None
        selectors: list[dict[str, str]] = []
        idle = {
            each.name: not (each.active or each.ready or each.succeeded or each.failed or each.suspended)
            for each in job_set.status.replicated_jobs_status or ()
        }
        if all(idle.values()):
            about_job_set = {"involvedObject.kind": "JobSet", "involvedObject.name": job_set.name}
            selectors.append({**about_job_set, "reason": "JobCreationFailed"})
        if any(idle.values()):
            selectors.append({"involvedObject.kind": "Job", "reason": "FailedCreate"})
        names = {
            f"{job_set.name}-{job.name}-{index}"
            for job in job_set.spec.replicated_jobs or ()
            if idle.get(job.name)
            for index in range(min(job.replicas or 1, _MOST_PODS))
        }
        for fields in selectors:
            with anyio.move_on_after(_EVENTS_TIME):
                try:
                    async with self._events.watch(
                        Event, namespace=job_set.namespace, fields=fields, resource_version="0"
                    ) as events:
                        async for each in events:
                            about, seen = each.object.involved_object, each.object.metadata.creation_timestamp
                            if about is None or not seen or parse_time(seen) < parse_time(since):
                                continue
                            if about.uid == job_set.metadata.uid or about.name in names:
                                return each.object
                except _UNREADABLE as error:
                    _log.debug("Events cannot be read", jobSet=str(job_set.key), error=error)
        return None


def is_awaited(train_job: TrainJob) -> bool:
    """Return True if a TrainJob should run and has not started: none of its Jobs is ready or has succeeded."""
    if train_job.spec.suspend or train_job.metadata.deletion_timestamp is not None:
        return False
    if not trainjob.is_ours(train_job) or trainjob.is_finished(train_job):
        return False
    return not any(each.ready or each.succeeded for each in train_job.status.jobs_status or ())


def _groups_of(job_set: JobSet) -> list[type[Object]]:
    """Return the kinds of PodGroup to which the pods of a JobSet belong. The plugins cache these kinds."""
    found: list[type[Object]] = []
    for each in job_set.spec.replicated_jobs or ():
        metadata = each.template.spec.template.metadata
        if metadata is None:
            continue
        if POD_GROUP_LABEL in (metadata.labels or {}):
            found.append(CoschedulingGroup)
        if KUBE_GROUP_NAME_ANNOTATION_KEY in (metadata.annotations or {}):
            found.append(VolcanoGroup)
    return list(dict.fromkeys(found))
