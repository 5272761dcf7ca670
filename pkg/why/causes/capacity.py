# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the resources that a pod requests with the resources that nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON, quantity

from pkg.why import kinds
from pkg.why.liveobject import LiveObject, at, maps, text
from pkg.why.snapshot import Snapshot

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_MOST_NODES: Final = 5


class Misfit(NamedTuple):
    """Why a pod would not fit on any node, even if no other pods ran."""

    words: str
    evidence: list[str]
    is_unknown: bool = False
    """True if the names of the devices may be wrong, or their device plugin offers none of them."""


def misfit(snapshot: Snapshot, pod: LiveObject, resources: Iterable[str]) -> Misfit | None:
    """Return why the pod fits on no empty node, or None. The scheduler names the ``resources`` that are short."""
    nodes = snapshot.all(kinds.NODE)
    if not nodes:
        return None
    short = [name for name in dict.fromkeys(_named(pod, each) for each in resources) if requested(pod, name)]
    if missing := [name for name in short if _largest(snapshot, name) is None]:
        evidence = [
            f"container {text(container, 'name')} of {pod} requests {amounts}"
            for container in _containers(pod)
            if (amounts := ", ".join(f"{own} {name}" for name in missing if (own := _of(container, name))))
        ]
        shown = " or ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        words = f"no node has {shown}; a pod requests {_amounts(pod, missing)}"
        is_offered = any(
            node.at("status", "allocatable", name) is not None for node in nodes for name in missing
        )
        return Misfit(words, evidence, is_offered or len(missing) > 1 or missing[0] not in _GPUS)
    for name in short:
        amount, most = requested(pod, name), _largest(snapshot, name)
        if amount is not None and most is not None and quantity.cmp(amount, most[0]) > 0:
            words = f"a pod requests {amount} {name}, and no node has more than {most[0]}"
            return Misfit(words, [_compared(pod, name, amount, most)])
    wanted = demand(pod)
    if room(snapshot, wanted) != 0:
        return None
    amounts = _amounts(pod, wanted)
    evidence = [f"{pod} requests {amounts}"]
    for node in nodes[:_MOST_NODES]:
        allocatable = node.at("status", "allocatable")
        offer = ", ".join(f"{at(allocatable, name) or 0} {name}" for name in wanted if name != "pods")
        evidence.append(f"Node {node.name} has {offer}")
    return Misfit(f"a pod requests {amounts}, and no node has all of these", evidence)


def shortage(snapshot: Snapshot, pod: LiveObject, resource: str) -> tuple[str, list[str]]:
    """Return summary and evidence for a pod for which no node has enough free ``resource`` now."""
    name = _named(pod, resource)
    wanted, most = requested(pod, name), _largest(snapshot, name)
    if wanted is None or most is None:
        return f"no node has enough free {resource}", []
    return f"no node has {wanted} {name} free", [_compared(pod, name, wanted, most)]


def _compared(pod: LiveObject, name: str, wanted: str, most: tuple[str, str]) -> str:
    return f"{pod} requests {wanted} {name}; the largest node has {most[0]} ({most[1]})"


def _containers(pod: LiveObject) -> list[dict[str, JSON]]:
    return [*pod.maps("spec", "containers"), *pod.maps("spec", "initContainers")]


def _amounts(pod: LiveObject, wanted: Iterable[str]) -> str:
    return ", ".join(f"{requested(pod, name)} {name}" for name in wanted if name != "pods")


def exceeds_cluster(snapshot: Snapshot, pod: LiveObject) -> tuple[str, str] | None:
    """Return the pods and the evidence in words if the TrainJob's pods would not all fit on empty nodes, else None.

    We count the pods with the same requests as ``pod``, and the pods that their Jobs have not created yet. For an
    elastic job, we count only the pods that it needs to start.
    """
    wanted, alike = demand(pod), []
    for each in snapshot.pods:
        has_ended = each.text("status", "phase") in ("Succeeded", "Failed") or each.deleted is not None
        if not has_ended and demand(each) == wanted:
            alike.append(each)
    jobs = [job for job in snapshot.jobs if any(each.owned_by(job.uid) for each in alike)]
    count = needed = len(alike) + sum(snapshot.missing_pods(job) for job in jobs)
    for container in maps(pod.data, "spec", "containers"):
        for variable in maps(container, "env"):  # of an elastic PyTorch job, this is a range
            fewest, colon, _ = str(at(variable, "value")).partition(":")
            if at(variable, "name") == "PET_NNODES" and colon and fewest.isascii() and fewest.isdecimal():
                needed = int(fewest[:9]) or needed
    taken = room(snapshot, wanted)
    if taken is None or taken >= min(needed, count):
        return None
    amounts = _amounts(pod, wanted)
    shown = f"{needed} pods, each with {amounts}," if amounts else f"{needed} pods"
    nodes = len(snapshot.all(kinds.NODE))
    return shown, f"{needed} such pods are needed at the same time; the {nodes} nodes have room for {taken}"


def demand(pod: LiveObject) -> dict[str, int]:
    """Return the pod's requests in thousandths of each resource. Each pod also requests 1 of the resource ``pods``."""
    names = {"pods"}
    for container in _containers(pod):
        for part in ("requests", "limits"):
            amounts = at(container, "resources", part)
            names.update(amounts if isinstance(amounts, dict) else ())
    found = {name: quantity.milli_value(requested(pod, name) or "0") for name in sorted(names)}
    return {name: milli for name, milli in found.items() if milli > 0}


def room(snapshot: Snapshot, wanted: Mapping[str, int]) -> int | None:
    """Return how many pods with these requests the nodes could take if they were empty; None if this is unknown.

    Only resources are considered. Because of selectors, taints and other pods, fewer pods may fit.
    """
    total = 0
    for node in snapshot.all(kinds.NODE):
        offered = node.at("status", "allocatable")
        if not isinstance(offered, dict):
            return None
        found = {name: str(offered.get(name, "0")) for name in wanted}
        if not all(is_quantity(each) for each in found.values()):
            return None
        total += min(quantity.milli_value(found[name]) // milli for name, milli in wanted.items())
    return total if snapshot.all(kinds.NODE) else None


def requested(pod: LiveObject, resource: str) -> str | None:
    """Return the amount that a pod requests, or None."""
    if resource == "pods":
        return "1"
    sidecars: str | None = None
    peak: str | None = None
    for each in maps(pod.data, "spec", "initContainers"):
        amount = _sum(sidecars, _of(each, resource))
        if text(each, "restartPolicy") == "Always":
            sidecars = amount
        else:
            peak = max(peak, amount, key=_milli)
    total = _sum(sidecars, *(_of(each, resource) for each in maps(pod.data, "spec", "containers")))
    overhead = at(pod.data, "spec", "overhead", resource)
    found = _sum(max(total, peak, key=_milli), None if overhead is None else str(overhead))
    return found and plain(found, resource)


def _sum(*amounts: str | None) -> str | None:
    """Return the sum of the amounts that are not None, or None if there are none."""
    total: str | None = None
    for amount in filter(None, amounts):
        total = amount if total is None else quantity.add(total, amount)
    return total


def _milli(amount: str | None) -> int:
    return -1 if amount is None else quantity.milli_value(amount)


def plain(amount: str, resource: str) -> str:
    """Return an amount in the form that people write, such as 1000 CPUs. Kubernetes' own form is 1k."""
    if resource == "memory" or "storage" in resource or "hugepages" in resource:
        return amount
    whole, thousandths = divmod(quantity.milli_value(amount), 1000)
    return amount if thousandths else str(whole)


def _named(pod: LiveObject, resource: str) -> str:
    """Return Kubernetes' name of the resource. Some schedulers write ``GPUs``, ``CPU`` or ``Memory`` instead."""
    if resource.lower().startswith("gpu"):
        return next((each for each in _GPUS if requested(pod, each) is not None), resource)
    return resource.lower() if resource.lower().startswith(("cpu", "memory")) else resource


def _of(container: JSON, resource: str) -> str | None:
    for part in ("requests", "limits"):
        found = at(container, "resources", part, resource)
        if found is not None and is_quantity(str(found)):
            return str(found)
    return None


def is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def _largest(snapshot: Snapshot, resource: str) -> tuple[str, str] | None:
    """Return the largest amount that any node offers, and the name of this node.

    Return None if no node has the resource.
    """
    best: tuple[str, str] | None = None
    for node in snapshot.all(kinds.NODE):
        found = node.at("status", "allocatable", resource)
        if found is None or not is_quantity(str(found)) or quantity.cmp(str(found), "0") == 0:
            continue
        if best is None or quantity.cmp(str(found), best[0]) > 0:
            best = str(found), node.name
    return best
