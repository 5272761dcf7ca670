# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods without a node: a scheduler cannot place them, or no scheduler has considered them.

The messages are those of kube-scheduler, Volcano and KAI.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.constants import kai
from pkg.why import kinds
from pkg.why.causes import capacity, leases, volumes
from pkg.why.finding import Finding, found
from pkg.why.liveobject import MOST_MATCHED, LiveObject, text
from pkg.why.rules import Severity, remedy
from pkg.why.snapshot import PATIENCE, Reference, Snapshot, condition_line, event_time

_DEFAULT: Final = "default-scheduler"
_SHORT: Final = re.compile(
    r"(?:(?P<nodes>\d{1,9}) )?(?:Insufficient (?P<name>[\w./-]*\w)|(?P<pods>Too many pods))"
    r"|didn't have enough resources?: (?P<kai>[\w ,/-]+)"
)
_TAINT: Final = re.compile(r"untolerated taints?(?:\(s\))? ?(?P<taint>\{[^}]*\}|)")
_CORDONED: Final = re.compile(r"node\(s\) were unschedulable")
_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NODE_CONDITION: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints with these prefixes mark nodes that cannot run pods. Kubernetes and cloud providers set such taints."""

_SCALES_UP: Final = ("TriggeredScaleUp", "Nominated")
"""Cluster Autoscaler and Karpenter record these events on a pod when they add a node for it."""
_PROVISIONED_WITHIN: Final = timedelta(minutes=15)
"""If a new node has not joined after this time, Cluster Autoscaler gives up."""


# fmt: off
_RULES: Final = tuple((re.compile(pattern), rule) for rule, pattern in (
    ("claim-missing", r'persistentvolumeclaim "(?P<name>[^"]+)" not found'),
    ("claim-pending/scheduler", r"unbound immediate PersistentVolumeClaims"),
    ("device-claim", r"[Rr]esource ?claim|cannot allocate all claims"),
    ("affinity/apart", r"didn't (?:match|satisfy) (?:existing pods|pod) anti-affinity"),
    ("affinity", r"didn't (?:match|satisfy) (?:existing pods|pod)(?: topology spread constraints| affinity)"),
    ("volume-node", r"volume node affinity conflict|didn't match PersistentVolume's node affinity"),
    ("volume-node", r"didn't find available persistent volumes|no available volume zone|exceed max volume count"),
    ("insufficient-resources", _SHORT.pattern),
    ("unschedulable/ports", r"didn't have free ports"),
    ("node-selector", r"didn't match [Pp]od's node affinity|didn't match node selector|node affinity/selector"),
    ("taints", _TAINT.pattern),
    ("nodes-cordoned", _CORDONED.pattern),
    ("no-nodes", r"no nodes available to schedule pods|0/0 nodes"),
    ("gang-waiting", r"(?i:cannot find enough sibling pods|rejected due to timeout after waiting)"),
    ("gang-waiting", r"(?i:optimistic rejection)"),
    ("gang-waiting", r"(?i:PodGroup .* gets rejected|pod group is not ready|minimum number of pods)"),
))
"""The rules by what the scheduler's message contains. Later filters of kube-scheduler come first: a node that a later
filter excludes has passed the earlier filters.
"""
# fmt: on


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each pod that has no node."""
    for pod in snapshot.pods:
        if (
            pod.text("spec", "nodeName")
            or pod.text("status", "phase") not in ("", "Pending")
            or pod.deleted is not None
        ):
            continue
        scheduled = pod.condition("PodScheduled")
        message = " ".join(text(scheduled, "message").split())
        if text(scheduled, "reason") == "SchedulingGated":
            if pod.at("spec", "schedulingGates"):  # without gates, the condition is not up to date
                gates = ", ".join(text(each, "name") for each in pod.maps("spec", "schedulingGates"))
                yield found("scheduling-gated", pod, f"spec.schedulingGates of {pod}: {gates}", gates=gates)
        elif scheduled.get("status") == "False" and message:
            yield unschedulable(snapshot, pod, message)
        elif warnings := snapshot.events(pod, "FailedScheduling", "Unschedulable"):
            # Some schedulers do not write the pod's condition.
            yield unschedulable(snapshot, pod, " ".join(warnings[0].text("message").split()))
        elif (ungrouped := _ungrouped(snapshot, pod)) is not None:
            yield ungrouped
        elif not snapshot.events(pod, "Scheduled"):
            yield from _ignored(snapshot, pod)


def _ungrouped(snapshot: Snapshot, pod: LiveObject) -> Finding | None:
    """Return a finding if the pod grouper has not given the pod a group. KAI-Scheduler ignores pods without a group."""
    if pod.annotation(kai.POD_GROUP_ANNOTATION_FOR_POD):
        return None
    for event in snapshot.events(pod, kai.POD_GROUPER_WARNING):
        words = " ".join(event.text("message").split()).rstrip(".")
        return found("pod-grouper", pod, snapshot.quote(event), words=words)
    name = pod.text("spec", "schedulerName")
    is_installed = kinds.KAI_GROUP not in snapshot.unread
    if name != kai.SCHEDULER_NAME or not is_installed or not pod.older_than(PATIENCE, snapshot.now):
        return None
    is_unread = kinds.EVENT in snapshot.unread
    events = "its events cannot be read" if is_unread else "the pod grouper has recorded no event"
    without = f"{pod} has no annotation {kai.POD_GROUP_ANNOTATION_FOR_POD}; {events}"
    return found("pod-grouper/silent", pod, f"spec.schedulerName of {pod} is {name}", without)


def _ignored(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    """Yield a finding if no scheduler has reported on the pod, or may have reported where it cannot be read."""
    name = pod.text("spec", "schedulerName") or _DEFAULT
    no_leader = leases.no_leader(snapshot, leases.SCHEDULER) if name == _DEFAULT else None
    if no_leader is None and not pod.older_than(PATIENCE, snapshot.now):
        return
    reports: tuple[str, ...] = ()  # the condition of the pod is enough
    if name != _DEFAULT:
        reports = (kinds.EVENT, *kinds.POD_GROUPS)
    elif any(pod.at("spec", field) is not None for field in ("schedulingGroup", "workloadRef")):
        reports = (kinds.NATIVE_GROUP, kinds.NATIVE_WORKLOAD)
    unread = ", ".join(filter(snapshot.is_hidden, reports))
    named = f"spec.schedulerName is {name}"
    if unread and no_leader is None:
        line = f"the scheduler may report on objects that cannot be read: {unread}"
        shown = (f"{pod} has no node and no PodScheduled condition", named, line)
        yield found("unschedulable/unread", pod, *shown, name=name, unread=unread)
    else:
        line = f"{pod} has no node, no PodScheduled condition and no event of a scheduler"
        yield found("scheduler-missing", pod, line, named, no_leader, name=name)


def unschedulable(snapshot: Snapshot, pod: LiveObject, message: str) -> Finding:
    """Return the finding for the last filter that excluded a node: this node has passed all earlier filters."""
    current = message[:MOST_MATCHED].partition(" preemption:")[0].strip()
    line = f"the scheduler on {pod}: {message}"
    if pod.condition("PodScheduled"):
        line = condition_line(pod, "PodScheduled")
    scaling = next(iter(snapshot.events(pod, "NotTriggerScaleUp", *_SCALES_UP)), None)
    evidence = (line, *([snapshot.quote(scaling)] if scaling is not None else []))
    for pattern, rule in _RULES:
        if not (match := pattern.search(current)):
            continue
        if (reason := _of_filter(snapshot, pod, rule, match)) is None:
            continue
        reason = dataclasses.replace(reason, evidence=evidence + reason.evidence)
        seen = event_time(scaling) if scaling is not None and scaling.text("reason") in _SCALES_UP else None
        if seen is None or snapshot.now - seen >= _PROVISIONED_WITHIN:
            return reason
        summary = f"{reason.summary}, and an autoscaler is adding a node"
        advice = remedy("scaling", other=f"{reason.advice[:1].lower()}{reason.advice[1:]}")
        return dataclasses.replace(reason, summary=summary, advice=advice, severity=Severity.WAITING)
    return found("unschedulable", pod, *evidence, words=current.rstrip("."))


def _of_filter(snapshot: Snapshot, pod: LiveObject, rule: str, match: re.Match[str]) -> Finding | None:
    """Return the finding of a rule, or None if the message shows that another filter is the cause."""
    match rule:
        case "claim-missing":
            return found(rule, pod, reference=Reference(kinds.CLAIM, pod.namespace, match["name"]))
        case "claim-pending/scheduler":
            names = volumes.pending(snapshot, pod)
            claim = f"the claim {names[0]}" if names else "a PersistentVolumeClaim of the pods"
            severity = Severity.NOTE if volumes.is_provisioned(snapshot, pod) else Severity.ERROR
            return found(rule, pod, severity=severity, claim=claim)
        case "insufficient-resources":
            return _short(snapshot, pod, match.string)
        case "node-selector":
            wanted, affinity = pod.at("spec", "nodeSelector"), pod.at("spec", "affinity", "nodeAffinity")
            labels = wanted.items() if isinstance(wanted, dict) else ()
            nodes = snapshot.all(kinds.NODE) if labels and affinity is None else ()
            if any(all(node.label(key) == value for key, value in labels) for node in nodes):
                return None  # another filter has excluded this node
            shown = ", ".join(f"{key}={value}" for key, value in labels)
            words = f"no node has the labels {shown} of the node selector"
            return found(rule, pod, words=words if shown else "no node matches the node affinity")
        case "taints":
            return _tainted(snapshot, pod, match.string)
        case _:
            return found(rule, pod)


def _short(snapshot: Snapshot, pod: LiveObject, message: str) -> Finding:
    """Return the finding that no node has enough of a resource.

    If the pod would not fit even on empty nodes, the finding is about the resource that causes this. Otherwise it is
    about the resource that is short on most nodes.
    """
    by_nodes = sorted(_SHORT.finditer(message), key=lambda each: -int(each["nodes"] or 0))
    resources = [
        each["name"] or ("pods" if each["pods"] else (each["kai"] or "").strip(" .")) for each in by_nodes
    ]
    names = (node.annotation(kinds.LOCAL_CLUSTER) for node in snapshot.all(kinds.NODE))
    local = next(filter(None, names), "")
    if (never := capacity.misfit(snapshot, pod, resources)) is not None:
        add = "local-gpus" if local and "gpu" in never.words else "add-a-node"
        add = remedy("devices" if never.is_unknown else add, local=local)
        return found("never-fits", pod, *never.evidence, words=never.words, add=add)
    if (larger := capacity.exceeds_cluster(snapshot, pod)) is not None:
        add = remedy("local-nodes" if local else "add-nodes", local=local)
        return found("job-too-large", pod, larger[1], shown=larger[0], add=add)
    words, evidence = capacity.shortage(snapshot, pod, resources[0])
    return found("insufficient-resources", pod, *evidence, words=words)


def _tainted(snapshot: Snapshot, pod: LiveObject, message: str) -> Finding | None:
    """Return a finding on the taints that the message names, else on the taints of the nodes.

    Newer schedulers do not name taints. If there are other taints, the taints of control planes are left out, because
    hardly any pod should tolerate them. If there are no other taints, and the message says that nodes are cordoned,
    return None.
    """
    named = [" ".join(each["taint"].strip("{}").split()) for each in _TAINT.finditer(message)]
    taints = dict.fromkeys(each.removesuffix(":").strip() for each in named if each)
    if not taints:
        for each in (each for node in snapshot.all(kinds.NODE) for each in node.maps("spec", "taints")):
            value, effect = (
                text(each, "value"),
                text(each, "effect"),
            )  # as kubectl writes it: key=value:effect
            shown = f"{text(each, 'key')}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"
            taints[shown] = None
    others = [each for each in taints if not each.startswith(_CONTROL_PLANE)]
    if not others and _CORDONED.search(message):
        return None
    shown = ", ".join(f"{{{each}}}" for each in others or taints)
    if others and all(each.startswith(_NODE_CONDITION) for each in others):
        return found("taints/not-ready", pod, shown=shown)
    return found("taints", pod, shown=f"{shown} " if shown else "")
