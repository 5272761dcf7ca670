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
from pkg.why.finding import Finding
from pkg.why.liveobject import LiveObject, ago, deadline, moment, number, text
from pkg.why.snapshot import CONTAINER_STEPS, Snapshot, condition_line

_REJECTED: Final = re.compile(
    r"OutOf\S+|UnexpectedAdmissionError|NodeAffinity|NodePorts|NodeName|TopologyAffinityError"
    r"|PodResizePending|AppArmor|SysctlForbidden|InvalidNodeInfo|PodOSNotSupported|SupplementalGroupsPolicyNotSupported"
    r"|VolumeAttachmentLimitExceeded"
)
_DISRUPTED: Final = {
    "PreemptionByScheduler": ("preempted", "the scheduler preempted Pod {} for a pod of higher priority"),
    "DeletionByTaintManager": ("node-lost", "Pod {} was deleted because of a taint of its node"),
    "EvictionByEvictionAPI": ("evicted", "Pod {} was evicted, for example by a drain of its node"),
    "TerminationByKubelet": ("evicted", "the kubelet ended Pod {}"),
    "DeletionByPodGC": ("node-lost", "Pod {} was deleted because its node does not exist"),
}
_NO_SANDBOX: Final = ("FailedCreatePodSandBox", "NetworkNotReady")
_SILENT: Final = timedelta(seconds=60)


def find(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on pods that were ended, refused or not started, and on pods whose node is lost."""
    nodes = {each.name: each for each in snapshot.all(kinds.NODE)}
    for pod in snapshot.pods:
        phase = pod.text("status", "phase")
        if phase == "Failed":
            yield from _ended(snapshot, pod)
        elif phase != "Succeeded":
            lost = list(_lost_node(snapshot, pod, nodes))
            yield from lost or _sandbox(snapshot, pod)
            if not lost:
                yield from _silent(snapshot, pod)
    if nodes:
        yield from _pinned(snapshot, nodes)


def _pinned(snapshot: Snapshot, nodes: dict[str, LiveObject]) -> Iterator[Finding]:
    """Yield a finding for each Job whose template sets a ``nodeName`` that does not exist.

    The pod garbage collector deletes the pods of such a Job.
    """
    for job in snapshot.jobs:
        name = job.text("spec", "template", "spec", "nodeName")
        if name and name not in nodes and snapshot.missing_pods(job):
            yield Finding(
                "node-lost",
                f"the node {name} does not exist, and nodeName of the pods is {name}",
                (str(job),),
                (f"spec.template.spec.nodeName of {job} is {name}", f"Node {name} was not found"),
                "Remove nodeName from the runtime; nodeSelector chooses nodes by their labels.",
            )


def _ended(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    reason, message = pod.text("status", "reason"), pod.text("status", "message")
    line = f"phase of {pod} is Failed: {', '.join(filter(None, (reason, message)))}"
    if reason == "Evicted":
        advice = "Raise the requests for memory and ephemeral-storage to the real usage of the pods."
        yield Finding(
            "evicted", f"the kubelet evicted Pod {pod.name}: {message}", (str(pod),), (line,), advice
        )
    elif reason in ("NodeLost", "Shutdown", "Terminated", "NodeShutdown"):
        summary = f"the node {pod.text('spec', 'nodeName')} of Pod {pod.name} was shut down or lost"
        yield Finding(
            "node-lost", summary, (str(pod),), (line,), "Restore the node, or remove it from the cluster."
        )
    elif _REJECTED.fullmatch(reason):
        summary = f"the node {pod.text('spec', 'nodeName')} refused Pod {pod.name}: {reason}: {message}"
        advice = (
            "Check the node's devices and free resources; the Job creates the pod again while it has retries."
        )
        yield Finding("node-rejected", summary, (str(pod),), (line,), advice)
    elif pod.is_true("DisruptionTarget"):
        yield _disrupted(pod)
    elif reason == "DeadlineExceeded":
        advice = "Raise activeDeadlineSeconds of the pods, or make the training shorter."
        summary = f"the {deadline(pod)} of Pod {pod.name} has passed"
        yield Finding("deadline-exceeded", summary, (str(pod),), (line,), advice)
    elif not any(number(each.ended, "exitCode") for each in of_pod(pod)):
        summary = f"Pod {pod.name} failed: {', '.join(filter(None, (reason, message))) or 'the reason is not known'}"
        yield Finding("failed", summary, (str(pod),), (line,), "See the events of the pod.")


def _disrupted(pod: LiveObject) -> Finding:
    reason = text(pod.condition("DisruptionTarget"), "reason")
    cause, summary = _DISRUPTED.get(reason, ("evicted", "Pod {} was disrupted"))
    evidence = (condition_line(pod, "DisruptionTarget"),)
    advice = "Submit the TrainJob again, with a higher priority or after the disruption; the runtime can set retries."
    return Finding(cause, summary.format(pod.name), (str(pod),), evidence, advice)


def _lost_node(snapshot: Snapshot, pod: LiveObject, nodes: dict[str, LiveObject]) -> Iterator[Finding]:
    name = pod.text("spec", "nodeName")
    node = nodes.get(name)
    if not name:
        return
    if node is None:
        if kinds.NODE not in snapshot.unread and kinds.NODE in snapshot.objects:
            evidence = (f"{pod} runs on the node {name}", f"Node {name} was not found")
            advice = "Wait for the pod garbage collector, or delete the pod with --force."
            yield Finding(
                "node-lost",
                f"the node {name} of Pod {pod.name} does not exist",
                (str(pod),),
                evidence,
                advice,
            )
        return
    ready = node.condition("Ready")
    if ready and ready.get("status") != "True":
        summary = (
            f"the node {name} does not report"
            if ready.get("status") == "Unknown"
            else f"the node {name} is not ready"
        )
        evidence = (condition_line(node, "Ready"), f"{pod} runs on it")
        yield Finding(
            "node-lost",
            summary,
            (f"Node {name}", str(pod)),
            evidence,
            "Repair the node, or delete it, so that its pods run elsewhere.",
        )


def _sandbox(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    if pod.text("status", "phase") not in ("", "Pending"):
        return
    for event in snapshot.unresolved(pod, _NO_SANDBOX, CONTAINER_STEPS)[:1]:
        words = " ".join(event.text("message").split())
        advice = "Check the network plugin (CNI) and the container runtime of the node."
        yield Finding(
            "sandbox-failed",
            f"the sandbox of Pod {pod.name} cannot be set up: {words}",
            (str(pod),),
            (snapshot.quote(event),),
            advice,
        )


def _silent(snapshot: Snapshot, pod: LiveObject) -> Iterator[Finding]:
    """Yield a finding if a pod was bound to a node some time ago, but the node's kubelet has not reported on it."""
    if not pod.text("spec", "nodeName") or pod.text("status", "startTime") or list(of_pod(pod)):
        return
    bound = moment(pod.condition("PodScheduled"), "lastTransitionTime") or pod.created
    if bound is None or snapshot.now - bound <= _SILENT:
        return
    if not snapshot.events(pod, "Pulling", "Pulled", "Created"):
        name = pod.text("spec", "nodeName")
        evidence = (f"{pod} was bound to {name} {ago(bound, snapshot.now)} ago and has had no status since",)
        yield Finding(
            "kubelet-silent",
            f"the kubelet of node {name} does not start Pod {pod.name}",
            (str(pod),),
            evidence,
            f"Check the kubelet of node {name}.",
        )
