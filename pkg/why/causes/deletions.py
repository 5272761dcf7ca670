# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that must be deleted before the manager can continue, such as the JobSet of an earlier TrainJob of the same
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pkg.apis.jobset.v1alpha2 import JOB_SET_NAME_KEY
from pkg.why import kinds
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import LiveObject, ago, finalizers_of, text
from pkg.why.snapshot import PATIENCE, Reference, Snapshot

_EVENT: Final = "WaitingForDeletion"
_AWAITED: Final = re.compile(
    r"Waiting for the deletion of (?P<kind>\w+) (?P<namespace>[^/\s]+)/(?P<name>[^\s;]+)"
)
_LOOKED_UP: Final = ("Secret", "ConfigMap")
_MOST_PODS: Final = 3


def references(snapshot: Snapshot) -> list[Reference]:
    """Return the Secret or ConfigMap that must be deleted first, if any. Snapshots look up these kinds by name."""
    awaited = _awaited(snapshot)
    return [awaited] if awaited is not None and awaited.kind in _LOOKED_UP else []


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the manager waits until an object has been deleted."""
    job = snapshot.train_job
    if not snapshot.manager_must_act:
        return
    earlier = _earlier_job_set(snapshot)
    if earlier is not None:
        if job.older_than(PATIENCE, snapshot.now):
            yield _of_job_set(snapshot, earlier)
        return
    for group in _deleted_groups(snapshot):
        requested = f"deletion of {group} was requested {ago(group.deleted, snapshot.now)} ago"
        yield _first(group, requested, finalizers_of(group))
        return
    awaited = _awaited(snapshot)
    if awaited is not None and _may_exist(snapshot, awaited):
        evidence = tuple(snapshot.quote(each) for each in snapshot.events(job, _EVENT)[:1])
        yield _first(awaited, *evidence)


def _first(awaited: LiveObject | Reference, *evidence: str) -> Finding:
    return Finding(
        "deletion-blocked",
        f"the {awaited} must be deleted first, but it still exists",
        (str(awaited),),
        evidence,
        "Look for its finalizers: the program that set one must remove it.",
        Severity.WAITING,
    )


def _deleted_groups(snapshot: Snapshot) -> Iterator[LiveObject]:
    """Yield the PodGroups with the TrainJob's name whose deletion was requested some time ago."""
    for group in (each for kind in kinds.POD_GROUPS for each in snapshot.all(kind)):
        since = group.deleted
        if group.name == snapshot.train_job.name and since is not None and snapshot.now - since >= PATIENCE:
            yield group


def _earlier_job_set(snapshot: Snapshot) -> LiveObject | None:
    """Return the JobSet of an earlier TrainJob with the same name, or None."""
    job = snapshot.train_job
    for each in snapshot.all(kinds.JOB_SET):
        owners = [
            text(owner, "uid")
            for owner in each.maps("metadata", "ownerReferences")
            if (text(owner, "kind"), text(owner, "name")) == (job.kind, job.name)
        ]
        if (each.namespace, each.name) == (job.namespace, job.name) and owners and job.uid not in owners:
            return each
    return None


def _of_job_set(snapshot: Snapshot, job_set: LiveObject) -> Finding:
    since = f"requested {ago(job_set.deleted, snapshot.now)} ago" if job_set.deleted else "not requested yet"
    pods = [
        pod
        for pod in snapshot.all(kinds.POD)
        if pod.namespace == job_set.namespace and pod.label(JOB_SET_NAME_KEY) == job_set.name
    ]
    evidence = (
        f"the owner of {job_set} is an earlier TrainJob {snapshot.train_job.name}",
        f"its deletion was {since}; {finalizers_of(job_set)}",
        *(
            f"{pod} still exists, on the node {pod.text('spec', 'nodeName') or 'none'}"
            for pod in pods[:_MOST_PODS]
        ),
    )
    return Finding(
        "deletion-blocked",
        f"the {job_set} of an earlier TrainJob of this name still exists",
        (str(job_set), *map(str, pods)),
        evidence,
        "Look for pods that do not end and for finalizers; the TrainJob starts once the JobSet is deleted.",
        Severity.WAITING,
    )


def _awaited(snapshot: Snapshot) -> Reference | None:
    """Return the object that must be deleted first according to the manager's newest event."""
    for event in snapshot.events(snapshot.train_job, _EVENT)[:1]:
        if match := _AWAITED.match(event.text("message")):
            return Reference(match["kind"], match["namespace"], match["name"])
    return None


def _may_exist(snapshot: Snapshot, awaited: Reference) -> bool:
    """Return False if the snapshot shows that the awaited object does not exist any more."""
    if awaited.kind in _LOOKED_UP:
        return awaited not in snapshot.absent
    same = [kind for kind in (kinds.JOB_SET, *kinds.POD_GROUPS) if kind.partition(".")[0] == awaited.kind]
    if any(map(snapshot.is_hidden, same)):
        return True
    return any(each.name == awaited.name for kind in same for each in snapshot.all(kind))
