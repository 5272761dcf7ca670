# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that the API server refused: children of the TrainJob, of its JobSet and of its Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.causes import refusals
from pkg.why.finding import Finding
from pkg.why.snapshot import PATIENCE, Snapshot, event_time
from pkg.why.things import Thing

_TRAIN_JOB: Final = ("TrainJobResourcesCreationFailed",)
_JOB_SET: Final = ("JobCreationFailed", "HeadlessServiceCreationFailed")
_JOB: Final = ("FailedCreate",)
_RETRIED: Final = timedelta(minutes=20)
"""The longest time between two attempts of a controller: an older event describes a state that may have passed."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the newest refusal of each object whose children are incomplete."""
    job_set = snapshot.job_set
    if not snapshot.running and _is_behind(snapshot):
        since = max(filter(None, [pod.created for pod in snapshot.pods]), default=None)
        yield from _refused(snapshot, snapshot.train_job, _TRAIN_JOB, since)
    if job_set is not None and (not snapshot.jobs or _lacks_service(snapshot, job_set)):
        yield from _refused(snapshot, job_set, _JOB_SET)
    for job in snapshot.jobs:
        if snapshot.lacking(job):
            pods = [pod.created for pod in snapshot.all_pods if pod.owned_by(job.uid)]
            yield from _refused(snapshot, job, _JOB, max(filter(None, pods), default=None))


def _refused(
    snapshot: Snapshot, obj: Thing, reasons: tuple[str, ...], since: datetime | None = None
) -> Iterator[Finding]:
    for event in snapshot.events(obj, *reasons)[:1]:
        seen = event_time(event)
        if seen is None or snapshot.now - seen > _RETRIED or (since is not None and seen < since):
            return
        found = refusals.classify(event.text("message"))
        evidence = [snapshot.quote(event), *_usage(snapshot, found.cause)]
        yield Finding(found.cause, found.summary, (str(obj),), tuple(evidence), found.advice)


def _is_behind(snapshot: Snapshot) -> bool:
    """Return True if the TrainJob's children may be incomplete or not the current ones."""
    job_set = snapshot.job_set
    if job_set is None or not snapshot.jobs:
        return True
    return (job_set.at("spec", "suspend") is True) != (snapshot.train_job.at("spec", "suspend") is True)


def _lacks_service(snapshot: Snapshot, job_set: Thing) -> bool:
    return not snapshot.children(kinds.SERVICE, [job_set]) and job_set.older_than(PATIENCE, snapshot.now)


def _usage(snapshot: Snapshot, cause: str) -> Iterator[str]:
    if cause != "quota-exceeded":
        return
    for quota in snapshot.all(kinds.QUOTA):
        hard, used = quota.at("status", "hard") or {}, quota.at("status", "used") or {}
        shown = ", ".join(f"{name} {used.get(name, '0')} of {limit}" for name, limit in hard.items())
        yield f"{quota} is used: {shown}"
