# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deletions that take long: of the TrainJob, of its children and namespace, and of objects with a child's name, such as
the JobSet of an earlier TrainJob of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.apis.jobset.labels import JOB_SET_NAME_KEY
from pkg.why import kinds
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, ago, finalizers_of, text, texts
from pkg.why.snapshot import PATIENCE, Reference, Snapshot, condition_line, finished

_EVENT: Final = "WaitingForDeletion"
_AWAITED: Final = re.compile(
    r"Waiting for the deletion of (?P<kind>\w+) (?P<namespace>[^/\s]+)/(?P<name>[^\s;]+)"
)
_LOOKED_UP: Final = ("Secret", "ConfigMap")
_MOST_PODS: Final = 3
_LATE: Final = timedelta(seconds=60)
"""On a node that works, a pod is deleted within this time after its grace period has ended."""


def references(snapshot: Snapshot) -> list[Reference]:
    """Return the Secret or ConfigMap that must be deleted first, if any. Snapshots look up these kinds by name."""
    awaited = _awaited(snapshot)
    return [awaited] if awaited is not None and awaited.kind in _LOOKED_UP else []


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the manager waits until an object is deleted, or if a child or the namespace is deleted."""
    job = snapshot.train_job
    for namespace in snapshot.all(kinds.NAMESPACE):
        if namespace.text("status", "phase") == "Terminating" and namespace.name == job.namespace:
            line = f"phase of {namespace} is Terminating"
            yield found("namespace-terminating", namespace, line, name=namespace.name)
    for child in (*snapshot.owners[1:], *snapshot.pods):
        if snapshot.is_overdue(child) and not finished(job):
            line = f"deletion of {child} was requested {ago(child.deletion_requested, snapshot.now)} ago"
            yield found("deletion-blocked", child, line, finalizers_of(child), awaited=child)
            break
    if not snapshot.manager_must_act:
        return
    earlier = _earlier_job_set(snapshot)
    if earlier is not None:
        if job.older_than(PATIENCE, snapshot.now):
            yield _of_job_set(snapshot, earlier)
        return
    for group in (each for kind in kinds.POD_GROUPS for each in snapshot.all(kind)):
        since = group.deleted
        if group.name == job.name and since is not None and snapshot.now - since >= PATIENCE:
            requested = f"deletion of {group} was requested {ago(since, snapshot.now)} ago"
            yield found("deletion-blocked", group, requested, finalizers_of(group), awaited=group)
            return
    awaited = _awaited(snapshot)
    if awaited is not None and _may_exist(snapshot, awaited):
        evidence = (snapshot.quote(each) for each in snapshot.events(job, _EVENT)[:1])
        yield found("deletion-blocked", awaited, *evidence, awaited=awaited)


def of_train_job(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding on why the TrainJob still exists although it is being deleted."""
    job = snapshot.train_job
    if job.deleted is None:
        return
    chain = [*snapshot.owners, *snapshot.all_pods]
    held = [(each, texts(each.data, "metadata", "finalizers")) for each in chain]
    evidence = [f"deletion was requested {ago(job.deleted, snapshot.now)} ago"]
    evidence += [f"{each} has the finalizers {', '.join(names)}" for each, names in held if names]
    foreign = [
        (each, name)
        for each, names in held
        for name in names
        if name not in ("foregroundDeletion", "orphan") and not name.startswith("batch.kubernetes.io/")
    ]
    if foreign:
        about = [each for each, _ in foreign]
        yield found("deletion-blocked/finalizer", about, *evidence, holder=foreign[0][0], name=foreign[0][1])
        return
    # The grace period of a pod ends at its deletion timestamp.
    stuck = [pod for pod in snapshot.all_pods if pod.deleted and snapshot.now - pod.deleted > _LATE]
    if not stuck:
        yield found("deletion-blocked/children", job, *evidence)
        return
    names = {pod.text("spec", "nodeName") for pod in stuck}
    lost = [
        node
        for node in snapshot.all(kinds.NODE)
        if node.name in names and node.condition("Ready").get("status") != "True"
    ]
    for pod in stuck[:_MOST_PODS]:
        evidence.append(f"the grace period of {pod} ended {ago(pod.deleted, snapshot.now)} ago")
    evidence += [condition_line(node, "Ready") for node in lost[:_MOST_PODS]]
    node = lost[0].name if lost else stuck[0].text("spec", "nodeName")
    rule = "deletion-blocked/node" if lost else "deletion-blocked/pod"
    yield found(rule, stuck, *evidence, node=node, pod=stuck[0])


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
    evidence = [
        f"the owner of {job_set} is an earlier TrainJob {snapshot.train_job.name}",
        f"its deletion was {since}; {finalizers_of(job_set)}",
    ]
    evidence += [
        f"{pod} still exists, on the node {pod.text('spec', 'nodeName') or 'none'}"
        for pod in pods[:_MOST_PODS]
    ]
    awaited = f"{job_set} of an earlier TrainJob"
    return found("deletion-blocked", [job_set, *pods], *evidence, awaited=awaited)


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
