# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events and log lines about the life of a TrainJob.

An event about a lasting state is recorded once for each cause, and once more after a restart of the manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from controller_runtime import client, log
from controller_runtime.machinery import Object, conditions
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.machinery.printable import printable_line
from controller_runtime.recorder import EventRecorder

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime
from pkg.util.goduration import format_duration

from .applier import cached_kind
from .memory import Memories

LONG: Final = timedelta(seconds=60)
"""A deletion that takes longer than this is reported. By default, pods have 30 seconds to terminate."""
_MESSAGE_LIMIT: Final = 1000
_OUTCOMES: Final = {
    trainer.TRAIN_JOB_COMPLETE: "TrainJob Complete",
    trainer.TRAIN_JOB_FAILED: "TrainJob Failed",
    trainer.TRAIN_JOB_SUSPENDED: "TrainJob Suspended",
    trainer.TRAIN_JOB_RESUMED_REASON: "TrainJob Resumed",
}


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
    outcome = _outcome(before, after)
    if not outcome:
        return
    fields: dict[str, object] = {"after": _elapsed(after, now)}
    failed = conditions.find(after.status.conditions, trainer.TRAIN_JOB_FAILED)
    if failed is not None and outcome == trainer.TRAIN_JOB_FAILED:
        fields |= {"reason": failed.reason, "message": failed.message}
    restarts = job_set.status.restarts if job_set is not None else None
    log.logger_from().info(_OUTCOMES[outcome], **fields, restarts=restarts or 0)


def log_created(train_job: TrainJob, now: datetime) -> None:
    """Log that the children of a TrainJob were created for the first time."""
    if not train_job.status.jobs_status:
        log.logger_from().info("TrainJob Created", after=_elapsed(train_job, now))


def _outcome(before: TrainJob, after: TrainJob) -> str:
    for kind in (trainer.TRAIN_JOB_COMPLETE, trainer.TRAIN_JOB_FAILED, trainer.TRAIN_JOB_SUSPENDED):
        was, now = (conditions.is_true(each.status.conditions, kind) for each in (before, after))
        if now and not was:
            return kind
        if was and not now and kind == trainer.TRAIN_JOB_SUSPENDED:
            return trainer.TRAIN_JOB_RESUMED_REASON
    return ""


def _elapsed(train_job: TrainJob, now: datetime) -> str:
    """Return the time since the creation as Go prints a duration: ``4m12s``."""
    created = train_job.metadata.creation_timestamp
    seconds = max(0, int((now - parse_time(created)).total_seconds())) if created else 0
    return format_duration(seconds * 10**9)
