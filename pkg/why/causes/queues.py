# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Queues and gangs: Workloads of Kueue, and PodGroups of scheduler-plugins, Volcano, KAI and Kubernetes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pkg.constants import kai
from pkg.why import kinds
from pkg.why.causes import capacity, turns
from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject, maps, number, text
from pkg.why.rules import Severity, remedy
from pkg.why.snapshot import PATIENCE, Reference, Snapshot, condition_line

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_VOLCANO_QUEUE: Final = "Queue.scheduling.volcano.sh"
_KAI_QUEUE: Final = "Queue.scheduling.run.ai"
WITH_RESOURCES: Final = (_VOLCANO_QUEUE, _KAI_QUEUE, kinds.LOCAL_QUEUE, kinds.CLUSTER_QUEUE)
"""The kinds of queues whose quota and allocated resources are shown, or that lead to such a queue."""
_UNAVAILABLE: Final = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_FLAVOR: Final = re.compile(r"\bflavor ([^\s,;]+)")
_TOO_SMALL: Final = re.compile(
    r"insufficient quota for \S+ in flavor ([^\s,;]+), [^;]{0,200}?> maximum capacity"
)
_UNMATCHED: Final = re.compile(
    r"flavor (\S+) doesn't match node affinity|untolerated taint [^;]{0,200}? in flavor ([^\s,;]+)"
)


def queues(snapshot: Snapshot) -> list[Reference]:
    """Return the queues to which the TrainJob, its JobSet and its PodGroups refer."""
    named = [
        Reference(kinds.LOCAL_QUEUE, owner.namespace, name)
        for owner in (snapshot.train_job, snapshot.job_set)
        if owner is not None and (name := owner.label(QUEUE_LABEL))
    ]
    for group in groups(snapshot):
        name, kind = group.text("spec", "queue"), _queue_kind(group)
        if name and kind:
            named.append(Reference(kind, "", name))
    return list(dict.fromkeys(named))


def unadmitted(snapshot: Snapshot) -> LiveObject | None:
    """Return the TrainJob's Workload that waits in a queue of Kueue."""
    for each in snapshot.children(kinds.WORKLOAD, snapshot.owners):
        if each.text("spec", "queueName") and not any(map(each.is_true, ("QuotaReserved", "Finished"))):
            return each
    return None


def groups(snapshot: Snapshot) -> list[LiveObject]:
    """Return the PodGroups of the TrainJob's gangs."""
    named = {pod.annotation(kai.POD_GROUP_ANNOTATION_FOR_POD) for pod in snapshot.pods} - {""}
    of_pods = [each for each in snapshot.all(kinds.KAI_GROUP) if each.name in named]
    owned = [each for kind in kinds.POD_GROUPS for each in snapshot.children(kind, snapshot.owners)]
    return [*owned, *(each for each in of_pods if each.uid not in {other.uid for other in owned})]


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on queues that do not exist, and on queues and gangs for which the TrainJob has to wait."""
    job = snapshot.train_job
    for queue in queues(snapshot):
        if queue in snapshot.absent and not snapshot.running:
            yield found("queue-missing", queue, f"{queue} was not found", queue=queue)
    from pkg.apis.trainer.v1alpha1 import TRAIN_JOB_GANG_UNAVAILABLE  # slow to load

    unavailable = job.condition(TRAIN_JOB_GANG_UNAVAILABLE)
    if unavailable.get("status") == "True":
        line, words = condition_line(job, TRAIN_JOB_GANG_UNAVAILABLE), text(unavailable, "message")
        yield found("gang-unavailable", job, line, words=words)
    workloads = snapshot.children(kinds.WORKLOAD, snapshot.owners)
    for workload in workloads:
        yield from _workload(snapshot, workload)
    if not workloads and not snapshot.running:
        yield from _no_workload(snapshot)
    # If every pod has a node, the status of a gang that says otherwise is out of date.
    are_placed = bool(snapshot.pods) and all(pod.text("spec", "nodeName") for pod in snapshot.pods)
    if len(snapshot.running) < max(1, snapshot.expected) and not are_placed:
        for group in groups(snapshot):
            yield from _group(snapshot, group)
        if not any(each.name == job.name for kind in kinds.POD_GROUPS for each in snapshot.all(kind)):
            # The gang was deleted while the JobSet ran. The manager does not create it again.
            for event in snapshot.events(job, "ChildNotRecreated"):
                kind = event.text("message").partition(" ")[0]
                if kind in ("PodGroup", "Workload"):
                    yield found("gang-unavailable/deleted", job, snapshot.quote(event), job=job, kind=kind)
                    break


def _workload(snapshot: Snapshot, workload: LiveObject) -> Iterator[Finding]:
    """Yield a finding if Kueue has not admitted a Workload."""
    if workload.is_true("Finished") or (workload.is_true("Admitted") and not workload.is_true("Evicted")):
        return
    queue = workload.text("spec", "queueName")
    head = f"{workload} in the queue {queue}, spec.active {workload.at('spec', 'active') is not False}"
    lines = [
        condition_line(workload, kind) for kind in ("QuotaReserved", "Evicted") if workload.condition(kind)
    ]
    evidence = (head, *lines, *(snapshot.quote(each) for each in snapshot.events(workload)[:1]))
    if checks := _checks(workload):
        evidence = (*evidence, *(f"admission check {each}" for each in checks))
        severity = Severity.ERROR if any(" is Rejected" in each for each in checks) else Severity.WAITING
        yield found("admission-check", workload, *evidence, severity=severity, words=checks[0])
        return
    reserved, evicted = workload.condition("QuotaReserved"), workload.condition("Evicted")
    local = [each for each in snapshot.all(kinds.LOCAL_QUEUE) if each.name == queue]
    queues_of = [
        *snapshot.all(kinds.CLUSTER_QUEUE),
        *local,
    ]  # the condition of the ClusterQueue is more specific
    words = " ".join(text(reserved, "message").split()) if reserved.get("status") == "False" else ""
    if workload.at("spec", "active") is False:
        yield found("workload-deactivated", workload, *evidence, workload=workload)
    elif words.startswith("LocalQueue") and "doesn't exist" in words:
        yield found("queue-missing/local", workload, *evidence, queue=queue)
    elif "doesn't exist" in words:
        yield found("queue-missing/cluster", workload, *evidence, words=words)
    elif "inactive" in words or "stopped" in words.lower():
        yield found("queue-inactive", workload, *evidence, queue=queue, words=words)
    elif stopped := [each for each in queues_of if each.condition("Active").get("status") == "False"]:
        # Kueue does not write this into Workloads that it has tried before.
        line, words = condition_line(stopped[0], "Active"), text(stopped[0].condition("Active"), "message")
        yield found("queue-inactive", workload, line, *evidence, queue=queue, words=words)
    else:
        quotas = turns.quotas(snapshot, workload)
        evidence = (*evidence, *quotas.lines, *turns.position(snapshot, workload))
        if evicted.get("status") == "True":
            reason, why = text(evicted, "reason"), text(evicted, "message")
            by = [f"it was preempted for {each}" for each in turns.preemptors(snapshot, why)]
            lacks = "" if words else quotas.lacks
            yield found("workload-evicted", workload, *by, *evidence, reason=reason, words=why, lacks=lacks)
            return
        todo, severity = _remedy(words, quotas)
        words = f": {words.rstrip('.')}" if words else ""
        yield found("queued", workload, *evidence, severity=severity, words=words, remedy=todo, queue=queue)


def _remedy(words: str, quotas: turns.Quotas) -> tuple[str, Severity]:
    """Return the advice and severity for a Workload that waits for quota, from Kueue's message.

    If the message names, for a pod set, only flavors that never fit, it does not help to wait. Kueue writes a message,
    which names the missing quota, only after it has tried to admit the Workload. Until then, the quotas of the
    ClusterQueue decide.
    """
    if not words:
        name = "lower" if quotas.never_fits else "wait"
        return remedy(name, lacks=quotas.lacks), Severity.ERROR if quotas.never_fits else Severity.WAITING
    for part in words.split("couldn't assign flavors to pod set ")[1:] if len(words) <= MOST_MATCHED else ():
        if match := _UNAVAILABLE.search(part):
            return remedy("quota-of", name=match[1]), Severity.ERROR
        flavors, too_small = set(_FLAVOR.findall(part)), set(_TOO_SMALL.findall(part))
        others = {name or other for name, other in _UNMATCHED.findall(part)}
        if flavors and flavors <= too_small:
            return remedy("lower", lacks=""), Severity.ERROR
        if flavors and flavors <= too_small | others:
            return remedy("flavors"), Severity.WAITING
    return remedy("wait", lacks=""), Severity.WAITING


def _checks(workload: LiveObject) -> list[str]:
    """Return the admission checks that failed.

    If none has failed, and the quota is reserved, return the checks that have not passed yet.
    """
    if workload.at("spec", "active") is False:
        return []
    states = workload.maps("status", "admissionChecks")
    failed = [each for each in states if text(each, "state") in ("Rejected", "Retry")]
    if not workload.is_true("QuotaReserved") and not failed:
        return []
    return [
        f"{text(each, 'name')} is {text(each, 'state')}: {text(each, 'message')}".rstrip(": ")
        for each in (failed or states)
        if text(each, "state") != "Ready"
    ]


def _no_workload(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the TrainJob names a queue of Kueue, but Kueue has not created a Workload for it."""
    job = snapshot.train_job
    queue = job.label(QUEUE_LABEL)
    if queue and job.at("spec", "suspend") is True and job.older_than(PATIENCE, snapshot.now):
        unread = snapshot.unread.get(kinds.WORKLOAD)
        seen = f"Workloads cannot be read: {unread}" if unread else "no Workload belongs to the TrainJob"
        name = "workloads-unread" if snapshot.is_hidden(kinds.WORKLOAD) else "kueue"
        shown = (f"label {QUEUE_LABEL} is {queue}", seen)
        yield found("queued/unseen", job, *shown, queue=queue, remedy=remedy(name, job=job))


def _group(snapshot: Snapshot, group: LiveObject) -> Iterator[Finding]:
    members, head = _members(group)
    yield from _too_large(snapshot, group, members, head)
    words = _unschedulable(group)
    events = [
        each
        for each in snapshot.events(group)
        if each.text("type") == "Warning" or each.text("reason") in ("Unschedulable", "NotReady")
    ]
    if not words and events:
        words = " ".join(events[0].text("message").split())
    queue, is_late = group.text("spec", "queue"), group.older_than(PATIENCE, snapshot.now)
    quotes = (snapshot.quote(each) for each in events[:2])
    evidence = (head, *quotes, words or None, *turns.resources(snapshot, _queue_kind(group), queue))
    count = len(snapshot.pods)
    if words:
        yield found("gang-unschedulable", group, *evidence, members=members, words=words.rstrip("."))
    elif count < members and snapshot.jobs and is_late:
        yield found("gang-waiting/pods", group, *evidence, members=members, count=count)
    elif group.text("status", "phase") in ("Pending", "Inqueue") and is_late:
        where = f"in the queue {queue}" if queue else "for its scheduler"
        yield found("gang-waiting/queue", group, *evidence, members=members, where=where)


def _members(group: LiveObject) -> tuple[int, str]:
    """Return how many pods must start together, and a line of evidence about the group."""
    if group.group_kind == kinds.NATIVE_GROUP:
        members = group.number("spec", "schedulingPolicy", "gang", "minCount")
    elif group.group_kind == kinds.NATIVE_WORKLOAD:
        members = sum(number(each, "policy", "gang", "minCount") for each in group.maps("spec", "podGroups"))
    else:
        members = group.number("spec", "minMember")
        return members, f"{group}: minMember {members}, phase {group.text('status', 'phase') or 'unset'}"
    return members, f"{group}: minCount {members}"


def _too_large(snapshot: Snapshot, group: LiveObject, members: int, head: str) -> Iterator[Finding]:
    """Yield a finding if the gang would not fit into the cluster even if no other pods ran."""
    if len(snapshot.pods) < members or any(pod.text("spec", "nodeName") for pod in snapshot.pods):
        return
    most = 0
    for demand, pods in Counter(tuple(capacity.demand(pod).items()) for pod in snapshot.pods).items():
        taken = capacity.room(snapshot, dict(demand))
        if taken is None:
            return
        most += min(taken, pods)
    if most >= members:
        return
    count, pods = len(snapshot.all(kinds.NODE)), len(snapshot.pods)
    nodes = f"{count} nodes have room for {most} of {pods} pods if no other pods run"
    yield found("gang-too-large", group, head, nodes, members=members, most=most, add=remedy("add-nodes"))


def _unschedulable(group: LiveObject) -> str:
    """Return the message with which a scheduler reports that it cannot place the gang."""
    from pkg.apis.scheduling import v1alpha2, v1beta1  # slow to load

    for kind in (v1beta1.SCHEDULED, v1alpha2.SCHEDULED):
        if (native := group.condition(kind)).get("status") == "False":
            return " ".join(text(native, "message").split())
    latest = [
        each
        for each in group.maps("status", "conditions")
        if text(each, "type") in ("Unschedulable", "Scheduled")
    ]
    latest.sort(key=lambda each: text(each, "lastTransitionTime"))
    for each in latest[-1:]:
        if text(each, "type") == "Unschedulable" and text(each, "status") == "True":
            return " ".join(text(each, "message").split())
    for each in reversed(group.maps("status", "schedulingConditions")):
        if text(each, "type") == "UnschedulableOnNodePool" and text(each, "status") == "True":
            reasons = [text(part, "message") for part in maps(each, "reasons")]
            return " ".join((text(each, "message") or "; ".join(filter(None, reasons))).split())
    return ""


def _queue_kind(group: LiveObject) -> str:
    return {kinds.VOLCANO_GROUP: _VOLCANO_QUEUE, kinds.KAI_GROUP: _KAI_QUEUE}.get(group.group_kind, "")
