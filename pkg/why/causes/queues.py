# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Queues and gangs: Workloads of Kueue, and PodGroups of scheduler-plugins, Volcano, KAI and Kubernetes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pkg.apis.scheduling import v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import TRAIN_JOB_GANG_UNAVAILABLE
from pkg.constants import kai
from pkg.why import kinds
from pkg.why.causes import capacity, turns
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import MOST_MATCHED, LiveObject, maps, number, text
from pkg.why.snapshot import PATIENCE, Reference, Snapshot, condition_line

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_LOCAL_QUEUE: Final = "LocalQueue.kueue.x-k8s.io"
_VOLCANO_QUEUE: Final = "Queue.scheduling.volcano.sh"
_KAI_QUEUE: Final = "Queue.scheduling.run.ai"
WITH_RESOURCES: Final = (_VOLCANO_QUEUE, _KAI_QUEUE)
"""The kinds of queues whose quota and allocated resources are shown."""
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
    found = [
        Reference(_LOCAL_QUEUE, owner.namespace, name)
        for owner in (snapshot.train_job, snapshot.job_set)
        if owner is not None and (name := owner.label(QUEUE_LABEL))
    ]
    for group in groups(snapshot):
        name, kind = group.text("spec", "queue"), _queue_kind(group)
        if name and kind:
            found.append(Reference(kind, "", name))
    return list(dict.fromkeys(found))


def unadmitted(snapshot: Snapshot) -> LiveObject | None:
    """Return the TrainJob's Workload that waits in a queue of Kueue."""
    for each in snapshot.children(kinds.WORKLOAD, snapshot.owners):
        if each.text("spec", "queueName") and not any(map(each.is_true, ("QuotaReserved", "Finished"))):
            return each
    return None


def groups(snapshot: Snapshot) -> list[LiveObject]:
    """Return the PodGroups of the TrainJob's gangs."""
    named = {pod.annotation(kai.POD_GROUP_ANNOTATION_FOR_POD) for pod in snapshot.pods} - {""}
    found = []
    for kind in kinds.POD_GROUPS:
        owned = {each.uid for each in snapshot.children(kind, snapshot.owners)}
        found += [
            each
            for each in snapshot.all(kind)
            if each.uid in owned or (kind == kinds.KAI_GROUP and each.name in named)
        ]
    return found


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on queues that do not exist, and on queues and gangs for which the TrainJob has to wait."""
    for queue in queues(snapshot):
        if queue in snapshot.absent and not snapshot.running:
            kind = queue.kind.partition(".")[0]
            summary, advice = (
                f"the {queue} does not exist",
                f"Create the {kind} {queue.name}, or name another queue.",
            )
            yield Finding("queue-missing", summary, (str(queue),), (f"{queue} was not found",), advice)
    yield from _unavailable(snapshot.train_job)
    workloads = snapshot.children(kinds.WORKLOAD, snapshot.owners)
    for workload in workloads:
        yield from _workload(snapshot, workload)
    if not workloads and not snapshot.running:
        yield from _no_workload(snapshot)
    if len(snapshot.running) < max(1, snapshot.expected) and not _are_placed(snapshot):
        for group in groups(snapshot):
            yield from _group(snapshot, group)
        yield from _deleted_gang(snapshot)


def _are_placed(snapshot: Snapshot) -> bool:
    """Return True if every pod has a node. The status of a gang that still says otherwise is then out of date."""
    return bool(snapshot.pods) and all(pod.text("spec", "nodeName") for pod in snapshot.pods)


def _unavailable(job: LiveObject) -> Iterator[Finding]:
    """Yield a finding if the cluster lacks the API or the CRD that the gang needs."""
    condition = job.condition(TRAIN_JOB_GANG_UNAVAILABLE)
    if condition.get("status") == "True":
        yield Finding(
            "gang-unavailable",
            f"the cluster cannot schedule the gang: {text(condition, 'message')}",
            (str(job),),
            (condition_line(job, TRAIN_JOB_GANG_UNAVAILABLE),),
            "The TrainJob continues when the API or the CRD is installed.",
        )


def _deleted_gang(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the PodGroup of the gang was deleted while the JobSet ran.

    The manager does not create it again.
    """
    job = snapshot.train_job
    if any(each.name == job.name for kind in kinds.POD_GROUPS for each in snapshot.all(kind)):
        return
    for event in snapshot.events(job, "ChildNotRecreated"):
        if event.text("message").startswith(("PodGroup ", "Workload ")):
            kind = event.text("message").partition(" ")[0]
            yield Finding(
                "gang-unavailable",
                f"the gang {job.name} of the pods does not exist: its {kind} was deleted",
                (str(job),),
                (snapshot.quote(event),),
                f"Suspend and resume the TrainJob: trainerctl suspend {job.name} -n {job.namespace}",
            )
            return


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
        yield _unchecked(workload, checks, evidence)
        return
    cause, summary, advice = _held(workload, queue)
    severity = Severity.ERROR if cause == "queue-missing" else Severity.WAITING
    if cause == "queued":
        advice, severity = _remedy(text(workload.condition("QuotaReserved"), "message"))
        evidence = (*evidence, *turns.position(snapshot, workload))
    yield Finding(cause, summary, (str(workload),), evidence, advice, severity)


def _remedy(words: str) -> tuple[str, Severity]:
    """Return the advice and severity for a Workload that waits for quota, from Kueue's message.

    If the message names, for a pod set, only flavors that never fit, it does not help to wait.
    """
    for part in words.split("couldn't assign flavors to pod set ")[1:] if len(words) <= MOST_MATCHED else ():
        if match := _UNAVAILABLE.search(part):
            advice = f"Ask the administrator of the queue for a quota of {match[1]}, or do not request it."
            return advice, Severity.ERROR
        flavors, too_small = set(_FLAVOR.findall(part)), set(_TOO_SMALL.findall(part))
        others = {name or other for name, other in _UNMATCHED.findall(part)}
        if flavors and flavors <= too_small:
            advice = (
                "Lower spec.trainer.numNodes or resourcesPerNode, or ask the administrator for a larger quota"
                f"{_in_numbers(part)}."
            )
            return advice, Severity.ERROR
        if flavors and flavors <= too_small | others:
            advice = (
                "Correct nodeSelector, affinity and tolerations of the pods to match a flavor of the queue."
            )
            return advice, Severity.WAITING
    return f"Wait for quota of the queue, or ask its administrator{_in_numbers(words)}.", Severity.WAITING


def _in_numbers(words: str) -> str:
    lacks = turns.missing(words)
    return f"; missing: {lacks}" if lacks else ""


def _held(workload: LiveObject, queue: str) -> tuple[str, str, str]:
    """Return cause, summary and advice for a Workload that is not admitted, from Kueue's messages."""
    reserved, evicted = workload.condition("QuotaReserved"), workload.condition("Evicted")
    words = " ".join(text(reserved, "message").split()) if reserved.get("status") == "False" else ""
    if workload.at("spec", "active") is False:
        advice = "Activate it: set spec.active of the Workload to true."
        return "workload-deactivated", f"Kueue deactivated the Workload {workload.name}", advice
    if words.startswith("LocalQueue") and "doesn't exist" in words:
        advice = f"Create the LocalQueue {queue}, or correct the label {QUEUE_LABEL}."
        return "queue-missing", f"the LocalQueue {queue} does not exist", advice
    if "doesn't exist" in words:
        return "queue-missing", f"a queue does not exist: {words}", "Create the ClusterQueue."
    if "inactive" in words or "stopped" in words.lower():
        summary = f"the queue {queue} does not admit jobs: {words}"
        return "queue-inactive", summary, "Ask the administrator of the queue."
    if evicted.get("status") == "True":
        summary = f"Kueue evicted the Workload ({text(evicted, 'reason')}): {text(evicted, 'message')}"
        return "workload-evicted", summary, "Wait until Kueue admits it again."
    reason = f": {words.rstrip('.')}" if words else ""
    summary = f"Kueue has not admitted the TrainJob in the queue {queue}{reason}"
    return "queued", summary, ""


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


def _unchecked(workload: LiveObject, checks: list[str], evidence: tuple[str, ...]) -> Finding:
    rejected = any(" is Rejected" in each for each in checks)
    summary = f"an admission check of Kueue has not passed: {checks[0]}"
    lines = tuple(f"admission check {each}" for each in checks)
    advice = "See the controller of the admission check."
    return Finding(
        "admission-check",
        summary,
        (str(workload),),
        (*evidence, *lines),
        advice,
        Severity.ERROR if rejected else Severity.WAITING,
    )


def _no_workload(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the TrainJob names a queue of Kueue, but Kueue has not created a Workload for it."""
    job = snapshot.train_job
    queue = job.label(QUEUE_LABEL)
    if queue and job.at("spec", "suspend") is True and job.older_than(PATIENCE, snapshot.now):
        unread = snapshot.unread.get(kinds.WORKLOAD)
        evidence = (
            f"label {QUEUE_LABEL} is {queue}",
            f"Workloads cannot be read: {unread}" if unread else "no Workload belongs to the TrainJob",
        )
        advice = "Check that Kueue runs, and that its configuration lists trainer.kubeflow.org/trainjob."
        if snapshot.is_hidden(kinds.WORKLOAD):
            advice = f"Get permission to list Workloads in namespace {job.namespace}: they show the reason."
        yield Finding(
            "queued",
            f"the TrainJob waits for the Kueue queue {queue}",
            (str(job),),
            evidence,
            advice,
            Severity.WAITING,
        )


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
    numbers = turns.resources(snapshot, _queue_kind(group), group.text("spec", "queue"))
    evidence = (
        head,
        *(snapshot.quote(each) for each in events[:2]),
        *([words] if words else []),
        *numbers,
    )
    if words:
        summary = f"the gang of {members} pods does not fit: {words.rstrip('.')}"
        advice = (
            "See the queue's limits and the free resources; all pods of the gang must fit at the same time."
        )
        yield Finding("gang-unschedulable", summary, (str(group),), evidence, advice, Severity.WAITING)
    elif len(snapshot.pods) < members and snapshot.jobs and group.older_than(PATIENCE, snapshot.now):
        summary = f"the gang needs {members} pods, and {len(snapshot.pods)} exist"
        advice = "See the events of the Jobs, which show why the other pods do not exist."
        yield Finding("gang-waiting", summary, (str(group),), evidence, advice, Severity.WAITING)
    elif group.text("status", "phase") in ("Pending", "Inqueue") and group.older_than(PATIENCE, snapshot.now):
        summary = f"the gang of {members} pods waits {_queue_of(group)}"
        advice = "Wait for free resources in the queue."
        yield Finding("gang-waiting", summary, (str(group),), evidence, advice, Severity.WAITING)


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
    summary = (
        f"the gang of {members} pods is larger than the cluster: all nodes together have room for {most} of its "
        "pods"
    )
    nodes = (
        f"{len(snapshot.all(kinds.NODE))} nodes have room for {most} of {len(snapshot.pods)} pods if no other pods "
        "run"
    )
    advice = "Lower spec.trainer.numNodes or the requests of the pods, or add nodes."
    yield Finding("gang-too-large", summary, (str(group),), (head, nodes), advice, Severity.WAITING)


def _unschedulable(group: LiveObject) -> str:
    """Return the message with which a scheduler reports that it cannot place the gang."""
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


def _queue_of(group: LiveObject) -> str:
    name = group.text("spec", "queue")
    return f"in the queue {name}" if name else "for its scheduler"
