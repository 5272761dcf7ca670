# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods without a node: a scheduler cannot place them, or no scheduler has considered them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pkg.constants import kai
from pkg.why import kinds
from pkg.why.causes import filters, leases
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import LiveObject, maps, text
from pkg.why.snapshot import PATIENCE, Snapshot

_DEFAULT: Final = "default-scheduler"


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
                yield _gated(pod)
        elif scheduled.get("status") == "False" and message:
            yield filters.unschedulable(snapshot, pod, message)
        elif warnings := snapshot.events(pod, "FailedScheduling", "Unschedulable"):
            # Some schedulers do not write the pod's condition.
            yield filters.unschedulable(snapshot, pod, " ".join(warnings[0].text("message").split()))
        elif (ungrouped := _ungrouped(snapshot, pod)) is not None:
            yield ungrouped
        elif not snapshot.events(pod, "Scheduled"):
            no_leader = leases.no_leader(snapshot, leases.SCHEDULER) if _is_default(pod) else None
            if no_leader is not None or pod.older_than(PATIENCE, snapshot.now):
                unread = () if no_leader is not None else _unread(snapshot, pod)
                yield _unread_reason(pod, unread) if unread else _no_scheduler(pod, no_leader)


def _gated(pod: LiveObject) -> Finding:
    gates = ", ".join(text(each, "name") for each in maps(pod.data, "spec", "schedulingGates"))
    advice = "The program that set a gate must remove it; kueue.x-k8s.io/* gates wait for Kueue's admission."
    evidence = (f"spec.schedulingGates of {pod}: {gates}",)
    return Finding(
        "scheduling-gated",
        f"the scheduling gates {gates} hold the pods",
        (str(pod),),
        evidence,
        advice,
        Severity.WAITING,
    )


def _ungrouped(snapshot: Snapshot, pod: LiveObject) -> Finding | None:
    """Return a finding if the pod grouper has not given the pod a group. KAI-Scheduler ignores pods without a group."""
    if pod.annotation(kai.POD_GROUP_ANNOTATION_FOR_POD):
        return None
    for event in snapshot.events(pod, kai.POD_GROUPER_WARNING):
        words = " ".join(event.text("message").split())
        summary = f"the pod grouper cannot give the pods a group: {words.rstrip('.')}"
        advice = (
            "Correct the object or setting that the message names; the pod grouper tries again by itself."
        )
        return Finding("pod-grouper", summary, (str(pod),), (snapshot.quote(event),), advice)
    name = pod.text("spec", "schedulerName")
    is_installed = kinds.KAI_GROUP not in snapshot.unread
    if name != kai.SCHEDULER_NAME or not is_installed or not pod.older_than(PATIENCE, snapshot.now):
        return None
    events = (
        "its events cannot be read"
        if kinds.EVENT in snapshot.unread
        else "the pod grouper has recorded no event"
    )
    evidence = (
        f"spec.schedulerName of {pod} is {name}",
        f"{pod} has no annotation {kai.POD_GROUP_ANNOTATION_FOR_POD}; {events}",
    )
    summary = "the pod grouper has given the pods no group, and pods without a group are not scheduled"
    advice = "Check that KAI-Scheduler's pod grouper runs and selects the namespace, and read its log."
    return Finding("pod-grouper", summary, (str(pod),), evidence, advice)


def _is_default(pod: LiveObject) -> bool:
    return pod.text("spec", "schedulerName") in ("", _DEFAULT)


def _no_scheduler(pod: LiveObject, no_leader: str | None) -> Finding:
    name = pod.text("spec", "schedulerName") or _DEFAULT
    evidence = (
        f"{pod} has no node, no PodScheduled condition and no event of a scheduler",
        f"spec.schedulerName is {name}",
        *([no_leader] if no_leader else []),
    )
    advice = f"Check that the scheduler {name} is installed and runs."
    return Finding(
        "scheduler-missing", f"the scheduler {name} does not react to the pods", (str(pod),), evidence, advice
    )


def _unread(snapshot: Snapshot, pod: LiveObject) -> tuple[str, ...]:
    """Return the kinds that could not be read, and in whose objects the pod's scheduler may report the reason."""
    if not _is_default(pod):
        found: tuple[str, ...] = (kinds.EVENT, *kinds.POD_GROUPS)
    elif any(pod.at("spec", field) is not None for field in ("schedulingGroup", "workloadRef")):
        found = (kinds.NATIVE_GROUP, kinds.NATIVE_WORKLOAD)
    else:
        return ()  # the condition of the pod is enough
    return tuple(filter(snapshot.is_hidden, found))


def _unread_reason(pod: LiveObject, unread: tuple[str, ...]) -> Finding:
    name = pod.text("spec", "schedulerName") or _DEFAULT
    evidence = (
        f"{pod} has no node and no PodScheduled condition",
        f"spec.schedulerName is {name}",
        f"the scheduler may report on objects that cannot be read: {', '.join(unread)}",
    )
    summary = f"the scheduler {name} has not placed the pods, and its reason cannot be read"
    advice = f"Get permission to list {', '.join(unread)}, or check that the scheduler {name} runs."
    return Finding("unschedulable", summary, (str(pod),), evidence, advice, Severity.WAITING)
