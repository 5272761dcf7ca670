# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the cause in the message of a scheduler that cannot place a pod. Knows kube-scheduler, Volcano and KAI."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from controller_runtime.machinery import JSON

from pkg.why import kinds
from pkg.why.causes import capacity, volumes
from pkg.why.finding import Finding, Severity
from pkg.why.liveobject import MOST_MATCHED, LiveObject, text
from pkg.why.snapshot import Snapshot, condition_line, event_time

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

_Maker = Callable[[Snapshot, LiveObject, "re.Match[str]"], "Finding | None"]


def unschedulable(snapshot: Snapshot, pod: LiveObject, message: str) -> Finding:
    """Return the finding for the last filter that excluded a node: this node has passed all earlier filters."""
    current = message[:MOST_MATCHED].partition(" preemption:")[0].strip()
    line = (
        f"the scheduler on {pod}: {message}"
        if not pod.condition("PodScheduled")
        else condition_line(pod, "PodScheduled")
    )
    scaling = next(iter(snapshot.events(pod, "NotTriggerScaleUp", *_SCALES_UP)), None)
    evidence = (line, *([snapshot.quote(scaling)] if scaling is not None else []))
    for pattern, maker in _RULES:
        if match := pattern.search(current):
            found = maker(snapshot, pod, match)
            if found is None:
                continue
            found = dataclasses.replace(found, evidence=evidence + found.evidence)
            return _scaled_up(found) if _adds_node(snapshot, scaling) else found
    summary = f"the scheduler cannot place the pods: {current.rstrip('.')}"
    return Finding(
        "unschedulable", summary, (str(pod),), evidence, "See the scheduler's message.", Severity.WAITING
    )


def _adds_node(snapshot: Snapshot, scaling: LiveObject | None) -> bool:
    """Return True if the newest event of an autoscaler is recent and says that it adds a node for the pod."""
    if scaling is None or scaling.text("reason") not in _SCALES_UP:
        return False
    seen = event_time(scaling)
    return seen is not None and snapshot.now - seen < _PROVISIONED_WITHIN


def _scaled_up(found: Finding) -> Finding:
    summary = f"{found.summary}, and an autoscaler is adding a node"
    advice = f"Wait for the node. If it does not come: {found.advice[:1].lower()}{found.advice[1:]}"
    return dataclasses.replace(found, summary=summary, advice=advice, severity=Severity.WAITING)


def _short(snapshot: Snapshot, pod: LiveObject, match: re.Match[str]) -> Finding:
    """Return the finding that no node has enough of a resource.

    If the pod would not fit even on empty nodes, the finding is about the resource that causes this. Otherwise it is
    about the resource that is short on most nodes.
    """
    by_nodes = sorted(_SHORT.finditer(match.string), key=lambda each: -int(each["nodes"] or 0))
    found = [capacity.shortage(snapshot, pod, _resource(each)) for each in by_nodes]
    never = next((each for each in found if each[0] == "never-fits"), None) or capacity.fits_no_empty_node(
        snapshot, pod
    )
    cause, summary, evidence = never or found[0]
    if never:
        advice = "Lower spec.trainer.resourcesPerNode, or add a node that is large enough."
        if "gpu" in summary and (replace := _new_local_cluster(snapshot)):
            advice = f"Lower spec.trainer.resourcesPerNode, or {replace} --gpus N."
        return Finding(cause, summary, (str(pod),), evidence, advice)
    if (larger := capacity.exceeds_cluster(snapshot, pod)) is not None:
        cause, summary, evidence = larger
        add = f"{replace} --nodes N" if (replace := _new_local_cluster(snapshot)) else "add nodes"
        advice = f"Lower spec.trainer.numNodes or the requests of the pods, or {add}."
        return Finding(cause, summary, (str(pod),), evidence, advice)
    advice = "Wait for other pods to end, free resources, or add nodes."
    return Finding(cause, summary, (str(pod),), evidence, advice, Severity.WAITING)


def _new_local_cluster(snapshot: Snapshot) -> str:
    """If the nodes belong to a local cluster of trainerctl, return the advice to replace it, without the new size."""
    names = (node.annotation(kinds.LOCAL_CLUSTER) for node in snapshot.all(kinds.NODE))
    name = next(filter(None, names), "")
    command = f"trainerctl cluster up --recreate --name {name}"
    return f"replace the local cluster and its objects: {command}" if name else ""


def _resource(match: re.Match[str]) -> str:
    return match["name"] or ("pods" if match["pods"] else (match["kai"] or "").strip(" ."))


def _unbound(snapshot: Snapshot, pod: LiveObject, match: re.Match[str]) -> Finding:
    del match
    names = volumes.pending(snapshot, pod)
    named = f"the claim {names[0]}" if names else "a PersistentVolumeClaim of the pods"
    summary, advice = f"{named} is not bound to a volume", "See the events of the claim."
    severity = Severity.NOTE if volumes.is_provisioned(snapshot, pod) else Severity.ERROR
    return Finding("claim-pending", summary, (str(pod),), (), advice, severity)


def _has_labelled_node(snapshot: Snapshot, pod: LiveObject, wanted: JSON) -> bool:
    """Return True if the pod has no node affinity, and a node has all labels of the node selector ``wanted``."""
    if not isinstance(wanted, dict) or not wanted or pod.at("spec", "affinity", "nodeAffinity") is not None:
        return False
    return any(
        all(node.label(key) == value for key, value in wanted.items()) for node in snapshot.all(kinds.NODE)
    )


def _selected(snapshot: Snapshot, pod: LiveObject, match: re.Match[str]) -> Finding | None:
    """Return the finding that no node matches the node selector.

    Return None if a node matches: then another filter has excluded this node and is the cause.
    """
    del match
    wanted = pod.at("spec", "nodeSelector") or {}
    if _has_labelled_node(snapshot, pod, wanted):
        return None
    shown = ", ".join(f"{key}={value}" for key, value in wanted.items()) if isinstance(wanted, dict) else ""
    summary = (
        f"no node has the labels {shown} of the node selector"
        if shown
        else "no node matches the node affinity"
    )
    advice = "Label the nodes, or correct nodeSelector and affinity in the TrainJob or its runtime."
    return Finding("node-selector", summary, (str(pod),), (), advice)


def _tainted(snapshot: Snapshot, pod: LiveObject, match: re.Match[str]) -> Finding | None:
    """Return a finding on the taints that the message names, else on the taints of the nodes.

    Newer schedulers do not name taints. If there are other taints, the taints of control planes are left out, because
    hardly any pod should tolerate them. If there are no other taints, and the message says that nodes are cordoned,
    return None.
    """
    named = [" ".join(each["taint"].strip("{}").split()) for each in _TAINT.finditer(match.string)]
    taints = dict.fromkeys(each.removesuffix(":").strip() for each in named if each) or {
        _taint(each): None for node in snapshot.all(kinds.NODE) for each in node.maps("spec", "taints")
    }
    others = [each for each in taints if not each.startswith(_CONTROL_PLANE)]
    if not others and _CORDONED.search(match.string):
        return None
    shown = ", ".join(f"{{{each}}}" for each in others or taints)
    if others and all(each.startswith(_NODE_CONDITION) for each in others):
        summary = f"the nodes are not ready to run pods: they have the taints {shown}"
        advice = "Repair the nodes; kubectl describe node shows their conditions. The taints are removed afterwards."
        return Finding("taints", summary, (str(pod),), (), advice)
    advice = "Add a toleration (podTemplateOverrides of the TrainJob, or the runtime), or remove the taint."
    summary = f"the pods do not tolerate the taints {shown}".rstrip() + " of the nodes"
    return Finding("taints", summary, (str(pod),), (), advice)


def _taint(taint: JSON) -> str:
    """Return a taint as kubectl writes it: ``key=value:effect``."""
    value, effect = text(taint, "value"), text(taint, "effect")
    return f"{text(taint, 'key')}{f'={value}' if value else ''}{f':{effect}' if effect else ''}"


def _simple(cause: str, summary: str, advice: str, severity: Severity = Severity.ERROR) -> _Maker:
    """Return a function that makes a finding.

    ``summary`` and ``advice`` may contain ``{namespace}`` and the names of groups in the rule's pattern, such as
    ``{name}``.
    """

    def made(snapshot: Snapshot, pod: LiveObject, match: re.Match[str]) -> Finding:
        del snapshot
        named = {**match.groupdict(), "namespace": pod.namespace}
        return Finding(cause, summary.format_map(named), (str(pod),), (), advice.format_map(named), severity)

    return made


_RULES: Final[tuple[tuple[re.Pattern[str], _Maker], ...]] = (
    (
        re.compile(r'persistentvolumeclaim "(?P<name>[^"]+)" not found'),
        _simple(
            "claim-missing",
            "the PersistentVolumeClaim {name} does not exist",
            "Create the PersistentVolumeClaim {name} in namespace {namespace}.",
        ),
    ),
    (re.compile(r"unbound immediate PersistentVolumeClaims"), _unbound),
    (
        re.compile(r"[Rr]esource ?claim|cannot allocate all claims"),
        _simple(
            "device-claim",
            "a ResourceClaim of the pods cannot be allocated",
            "Check the ResourceClaims and the DRA driver.",
            Severity.WAITING,
        ),
    ),
    (
        re.compile(r"didn't (?:match|satisfy) (?:existing pods|pod) anti-affinity"),
        _simple(
            "affinity",
            "the anti-affinity rules keep the pods apart from the pods on the nodes",
            "Wait until those pods end, add nodes, or relax the rules. JobSet's exclusive placement sets such rules.",
            Severity.WAITING,
        ),
    ),
    (
        re.compile(
            r"didn't (?:match|satisfy) (?:existing pods|pod)(?: topology spread constraints| affinity)"
        ),
        _simple(
            "affinity",
            "no node satisfies the pod affinity or topology spread constraints",
            "Relax the constraints, or add nodes.",
        ),
    ),
    (
        re.compile(
            r"volume node affinity conflict|didn't match PersistentVolume's node affinity"
            r"|didn't find available persistent volumes|no available volume zone|exceed max volume count"
        ),
        _simple(
            "volume-node",
            "no node can use the volumes of the pods",
            "Use volumes in the zone of the nodes, or detach volumes that are not needed.",
        ),
    ),
    (_SHORT, _short),
    (
        re.compile(r"didn't have free ports"),
        _simple(
            "unschedulable",
            "the host ports of the pods are not free on any node",
            "Do not use hostPort, or free the ports.",
            Severity.WAITING,
        ),
    ),
    (
        re.compile(r"didn't match [Pp]od's node affinity|didn't match node selector|node affinity/selector"),
        _selected,
    ),
    (_TAINT, _tainted),
    (
        _CORDONED,
        _simple("nodes-cordoned", "the nodes are cordoned", "Uncordon a node: kubectl uncordon NODE"),
    ),
    (
        re.compile(r"no nodes available to schedule pods|0/0 nodes"),
        _simple(
            "no-nodes", "the cluster has no nodes", "Add nodes, or wait for the autoscaler.", Severity.WAITING
        ),
    ),
    (
        re.compile(
            r"cannot find enough sibling pods|rejected due to timeout after waiting|optimistic rejection"
            r"|PodGroup .* gets rejected|pod group is not ready|minimum number of pods",
            re.IGNORECASE,
        ),
        _simple(
            "gang-waiting",
            "the gang waits for its other pods",
            "See the other pods and the PodGroup; all pods of the gang must fit at the same time.",
            Severity.WAITING,
        ),
    ),
)
"""The rules for later filters of kube-scheduler come first: a node that a later filter excludes has passed the earlier
filters.
"""
