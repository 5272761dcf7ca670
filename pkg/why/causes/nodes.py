# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that are lost, and pods that a node or the control plane has ended, refused or not started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from pkg.why import kinds
from pkg.why.causes.statuses import of_pod
from pkg.why.finding import Finding, found
from pkg.why.liveobject import LiveObject, ago, deadline, moment, number, text
from pkg.why.rules import Severity
from pkg.why.snapshot import CONTAINER_STEPS, Snapshot, condition_line

_REJECTED: Final = re.compile(
    r"OutOf\S+|UnexpectedAdmissionError|NodeAffinity|NodePorts|NodeName|TopologyAffinityError"
    r"|PodResizePending|AppArmor|SysctlForbidden|InvalidNodeInfo|PodOSNotSupported|SupplementalGroupsPolicyNotSupported"
    r"|VolumeAttachmentLimitExceeded"
)
_DISRUPTED: Final = {
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node-lost/taint",
    "EvictionByEvictionAPI": "evicted/drain",
    "TerminationByKubelet": "evicted/kubelet",
    "DeletionByPodGC": "node-lost/collected",
}
"""The rules by the reason of the condition ``DisruptionTarget``."""
_NO_SANDBOX: Final = ("FailedCreatePodSandBox", "NetworkNotReady")
_SILENT: Final = timedelta(seconds=60)


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on pods that were ended, refused or not started, and on pods whose node is lost."""
    nodes = {each.name: each for each in snapshot.all(kinds.NODE)}
    for pod in snapshot.pods:
        phase = pod.text("status", "phase")
        if phase == "Failed":
            yield from _ended(pod)
        elif phase != "Succeeded" and pod.deleted is not None and pod.is_true("DisruptionTarget"):
            yield _disrupted(pod, Severity.WAITING)  # the Job may create it again
        elif phase != "Succeeded" and (problem := _problem(snapshot, pod, nodes)) is not None:
            yield problem
    for pod in snapshot.removed:
        if pod.text("status", "reason") == "DeadlineExceeded":
            yield from _ended(pod)
        elif pod.is_true("DisruptionTarget") and any(job.is_true("Failed") for job in snapshot.jobs):
            yield _disrupted(pod)
    for job in (
        snapshot.jobs if nodes else ()
    ):  # the pod garbage collector deletes pods of a node that does not exist
        node = job.text("spec", "template", "spec", "nodeName")
        if node and node not in nodes and snapshot.missing_pods(job):
            shown = (f"spec.template.spec.nodeName of {job} is {node}", f"Node {node} was not found")
            yield found("node-lost/pinned", job, *shown, node=node)


def _ended(pod: LiveObject) -> Iterator[Finding]:
    """Yield a finding on a pod that failed for another reason than the exit code of a container."""
    reason, words = pod.text("status", "reason"), pod.text("status", "message")
    said = ", ".join(filter(None, (reason, words)))
    shown, node = f"phase of {pod} is Failed: {said}", pod.text("spec", "nodeName")
    if reason == "Evicted":
        yield found("evicted", pod, shown, pod=pod, words=words)
    elif reason in ("NodeLost", "Shutdown", "Terminated", "NodeShutdown"):
        yield found("node-lost/shutdown", pod, shown, pod=pod, node=node)
    elif _REJECTED.fullmatch(reason):
        yield found("node-rejected", pod, shown, pod=pod, node=node, reason=reason, words=words)
    elif pod.is_true("DisruptionTarget"):
        yield _disrupted(pod)
    elif reason == "DeadlineExceeded":
        yield found("deadline-exceeded/pod", pod, shown, pod=pod, deadline=deadline(pod))
    elif not any(number(each.ended, "exitCode") for each in of_pod(pod)):
        yield found("failed/pod", pod, shown, pod=pod, words=said or "the reason is not known")


def _disrupted(pod: LiveObject, severity: Severity | None = None) -> Finding:
    rule = _DISRUPTED.get(text(pod.condition("DisruptionTarget"), "reason"), "evicted/disrupted")
    return found(rule, pod, condition_line(pod, "DisruptionTarget"), severity=severity, pod=pod)


def _problem(snapshot: Snapshot, pod: LiveObject, nodes: dict[str, LiveObject]) -> Finding | None:
    """Return a finding on the node of a pod that should run: it is lost, or does not start the pod."""
    name = pod.text("spec", "nodeName")
    node = nodes.get(name) if name else None
    if name and node is None and kinds.NODE not in snapshot.unread and kinds.NODE in snapshot.objects:
        shown = (f"{pod} runs on the node {name}", f"Node {name} was not found")
        return found("node-lost/deleted", pod, *shown, pod=pod, node=name)
    ready = node.condition("Ready") if node is not None else None
    if node is not None and ready and ready.get("status") != "True":
        state = "does not report" if ready.get("status") == "Unknown" else "is not ready"
        shown = (condition_line(node, "Ready"), f"{pod} runs on it")
        return found("node-lost", [f"Node {name}", pod], *shown, node=name, state=state)
    if pod.text("status", "phase") == "Unknown":
        said = ", ".join(filter(None, (pod.text("status", "reason"), pod.text("status", "message"))))
        line = f"phase of {pod} is Unknown{f': {said}' if said else ''}"
        return found("node-lost/unknown", pod, line, pod=pod, node=name)
    if pod.text("status", "phase") in ("", "Pending"):
        for event in snapshot.unresolved(pod, _NO_SANDBOX, CONTAINER_STEPS)[:1]:
            words = " ".join(event.text("message").split())
            return found("sandbox-failed", pod, snapshot.quote(event), pod=pod, words=words)
    # The pod was bound to a node some time ago, but the node's kubelet has not reported on it.
    bound = moment(pod.condition("PodScheduled"), "lastTransitionTime") or pod.created
    if not name or pod.text("status", "startTime") or list(of_pod(pod)):
        return None
    if (
        bound is None
        or snapshot.now - bound <= _SILENT
        or snapshot.events(pod, "Pulling", "Pulled", "Created")
    ):
        return None
    line = f"{pod} was bound to {name} {ago(bound, snapshot.now)} ago and has had no status since"
    return found("kubelet-silent", pod, line, node=name, pod=pod)
