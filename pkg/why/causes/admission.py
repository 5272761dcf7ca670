# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that the API server refused to create: children of the TrainJob, of its JobSet or of its Jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.causes import refusals
from pkg.why.finding import Finding
from pkg.why.liveobject import LiveObject, at, text, texts
from pkg.why.rules import remedy
from pkg.why.snapshot import PATIENCE, Snapshot, event_time

TRAIN_JOB: Final = ("TrainJobResourcesCreationFailed",)
"""The reasons of the events that the manager records when it cannot create or change a child."""
_JOB_SET: Final = ("JobCreationFailed", "HeadlessServiceCreationFailed")
_JOB: Final = ("FailedCreate",)
RETRIED: Final = timedelta(minutes=20)
"""The longest time between two attempts of a controller. An older event may describe a state that has passed."""


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each object that lacks children, if a recent event says that the API server refused one."""
    job_set = snapshot.job_set
    if not snapshot.running and (snapshot.manager_must_act or lacks_jobs(snapshot)):
        since = max(filter(None, [pod.created for pod in snapshot.pods]), default=None)
        yield from _refused(snapshot, snapshot.train_job, TRAIN_JOB, since)
    lacks_service = (
        job_set is not None
        and kinds.SERVICE not in snapshot.unread
        and not snapshot.children(kinds.SERVICE, [job_set])
        and job_set.older_than(PATIENCE, snapshot.now)
    )
    if job_set is not None and (lacks_service or lacks_jobs(snapshot)):
        yield from _refused(snapshot, job_set, _JOB_SET)
    for job in snapshot.jobs:
        if snapshot.missing_pods(job):
            yield from refused_pods(snapshot, job)


def refused_pods(snapshot: Snapshot, job: LiveObject) -> list[Finding]:
    """Return the finding that a recent event says why the API server refuses the pods of a Job."""
    pods = [pod.created for pod in snapshot.all_pods if pod.owned_by(job.uid)]
    return list(_refused(snapshot, job, _JOB, max(filter(None, pods), default=None)))


def _refused(
    snapshot: Snapshot, obj: LiveObject, reasons: tuple[str, ...], since: datetime | None = None
) -> Iterator[Finding]:
    for event in snapshot.events(obj, *reasons)[:1]:
        seen = event_time(event)
        if seen is None or snapshot.now - seen > RETRIED or (since is not None and seen < since):
            return
        yield with_rules(snapshot, obj, event.text("message"), snapshot.quote(event))


def with_rules(snapshot: Snapshot, obj: LiveObject, message: str, *evidence: str) -> Finding:
    """Return the cause that the API server's text shows, with the LimitRanges or webhooks that refused."""
    refusal = refusals.refused(message, obj, *evidence)
    if refusal.cause == "quota-exceeded" and (scopes := _scopes(snapshot, message)):
        other = f"{refusal.advice[:1].lower()}{refusal.advice[1:]}"
        refusal = dataclasses.replace(refusal, advice=remedy("scopes", scopes=scopes, other=other))
    return dataclasses.replace(
        refusal, evidence=(*refusal.evidence, *_rules(snapshot, refusal.cause, message))
    )


def _scopes(snapshot: Snapshot, message: str) -> str:
    """Return the scopes of the ResourceQuota that refused a pod, in words."""
    for quota in snapshot.all(kinds.QUOTA):
        if f"quota: {quota.name}" in message:
            found = list(texts(quota.data, "spec", "scopes"))
            for each in quota.maps("spec", "scopeSelector", "matchExpressions"):
                words = (text(each, "scopeName"), text(each, "operator"), ", ".join(texts(each, "values")))
                found.append(" ".join(filter(None, words)))
            return " and ".join(found)
    return ""


def lacks_jobs(snapshot: Snapshot) -> bool:
    """Return True if the JobSet is missing or has no Jobs. If Jobs cannot be read, use the JobSet's status."""
    job_set = snapshot.job_set
    if job_set is None:
        return kinds.JOB_SET not in snapshot.unread
    if kinds.JOB in snapshot.unread:
        return not job_set.maps("status", "replicatedJobsStatus")
    return not snapshot.all_jobs


def _rules(snapshot: Snapshot, cause: str, message: str) -> Iterator[str]:
    """Yield lines of evidence that show the LimitRanges or webhooks which may have refused the object."""
    if cause == "limit-range":
        for each in snapshot.all(kinds.LIMIT_RANGE):
            for limit in each.maps("spec", "limits"):
                bounds = [
                    f"{bound} {name} {amount}"
                    for bound in ("min", "max", "default", "maxLimitRequestRatio")
                    if isinstance(amounts := at(limit, bound), dict)
                    for name, amount in amounts.items()
                ]
                yield f"{each} limits a {text(limit, 'type')}: {', '.join(bounds)}"
    elif cause.startswith("webhook-"):
        for configuration in (*snapshot.all(kinds.VALIDATING_WEBHOOK), *snapshot.all(kinds.MUTATING_WEBHOOK)):
            for webhook in configuration.maps("webhooks"):
                if f'"{text(webhook, "name")}"' in message:
                    service = at(webhook, "clientConfig", "service")
                    where = f"Service {text(service, 'namespace')}/{text(service, 'name')}"
                    where = where if service else text(webhook, "clientConfig", "url")
                    policy = text(webhook, "failurePolicy") or "Fail"
                    name = text(webhook, "name")
                    yield f"{configuration} has the webhook {name}: {where}, failurePolicy {policy}"
