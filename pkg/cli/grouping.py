# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What group a pod gets, and what each value of it is due to.

The causes are found by trying: a field of an object that was read is changed, or an object is taken away, and the pod is
grouped again. What comes out otherwise is due to that. So this holds for any grouper, also for those of others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.errors import StatusError
from pkg.apis.machinery.object import Object
from pkg.apis.scheduling.v2alpha2 import PodGroup
from pkg.config.document import render_path
from pkg.constants import kai
from pkg.podgrouper import ENTRY_POINT_GROUP, DirectOwners, PodGrouper, Settings, new_plugins_hub
from pkg.podgrouper.plugins import GroupingError, Reads
from pkg.podgrouper.podgroup import Metadata, SubGroupMetadata, TopologyConstraintMetadata

from .snapshot import Key, Snapshot

Data = dict[str, Any]
Objects = dict[Key, Data]
Path = tuple[str | int, ...]
Values = dict[str, Any]

REFUSALS: Final = (GroupingError, StatusError)
MOST_TRIES: Final = 2_000
"""So many changes are tried for one pod; the causes of a value beyond are not looked for."""

_NOT_TRIED: Final = ("apiVersion", "kind", "metadata")
_SHORT: Final = {"labels": "label", "annotations": "annotation"}


@dataclass(slots=True)
class Explanation:
    """One pod's group."""

    pod: Key
    left_alone: str = ""
    """Why the pod grouper does nothing about the pod, or nothing."""
    owners: list[Key] = field(default_factory=list)
    """Nearest first, the top owner last; of a pod without owners the pod itself."""
    grouper: str = ""
    values: Values = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    """By value: what it is due to; the grouper alone where there is nothing."""
    missing: list[Key] = field(default_factory=list)
    """Asked for, and not among the objects."""
    refusal: str = ""
    """Why the pod has no group, or nothing."""


async def explain(objects: Objects, pod: Key, settings: Settings) -> Explanation:
    """Group a pod of ``objects`` as the manager would."""
    explanation = Explanation(pod)
    explanation.left_alone = _left_alone(objects[pod], settings)
    if explanation.left_alone:
        return explanation
    first = _Try(objects, pod, settings)
    try:
        explanation.values = await first.run()
    except REFUSALS as error:
        explanation.refusal = str(error)
        return explanation
    finally:
        explanation.owners, explanation.grouper = first.owners, first.grouper
        explanation.missing = [key for key in first.snapshot.missing if key.kind != PodGroup.gvk]
    await _find_sources(explanation, first, settings)
    return explanation


def _left_alone(pod: Data, settings: Settings) -> str:
    decoded = Pod.from_dict(pod)
    scheduler = decoded.spec.scheduler_name or "default-scheduler"
    if scheduler != settings.controller.scheduler_name:
        return f"its scheduler is {scheduler}"
    group = decoded.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD)
    if group is not None and not decoded.metadata.owner_references:
        return f"it has no owner, and a group that somebody gave it: {group}"
    return ""


class _Try:
    """Groups the pod once."""

    def __init__(self, objects: Objects, pod: Key, settings: Settings) -> None:
        self.objects = objects
        self.snapshot = Snapshot(objects)
        self.owners: list[Key] = []
        self.grouper = ""
        self.reads = Reads.OBJECT
        self._pod = pod
        self._settings = settings

    async def run(self) -> Values:
        hub = new_plugins_hub(self.snapshot, self._settings.hub, found=_installed())
        grouper = PodGrouper(DirectOwners(self.snapshot, self.snapshot), hub)
        pod = Pod.from_dict(self.objects[self._pod])
        pod.metadata.namespace = self._pod.namespace
        top, owners = await grouper.get_pod_owners(pod)
        self.owners = [_key(each) for each in (owners or (top,))]
        chosen = hub.grouper_for(type(top).gvk)
        self.grouper, self.reads = chosen.name, chosen.reads
        metadata = await grouper.get_pg_metadata(pod, top, owners)
        pool = self._settings.controller.node_pool_label_key
        if pool and pool in pod.labels:
            metadata.labels = {pool: pod.labels[pool], **(metadata.labels or {})}
        return _values(metadata, pod)


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Return the groupers of others; looking for them takes longer than grouping."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


async def _find_sources(explanation: Explanation, first: _Try, settings: Settings) -> None:
    """Try changes of all that was read, and note which values come out otherwise."""
    chain = [*explanation.owners, explanation.pod]
    for tried, (what, objects) in enumerate(_changed(first, explanation.pod, chain)):
        if tried == MOST_TRIES:
            return
        try:
            values = await _Try(objects, explanation.pod, settings).run()
        except REFUSALS:
            continue  # without it there is no group at all, which tells nothing about one value
        for name in explanation.values.keys() | values.keys():
            if explanation.values.get(name) != values.get(name) and name in explanation.values:
                sources = explanation.sources.setdefault(name, [])
                if what not in sources:
                    sources.append(what)


def _changed(first: _Try, pod: Key, chain: list[Key]) -> Iterator[tuple[str, Objects]]:
    """Yield the objects with one thing changed, and what that is."""
    for key in chain:
        yield from _renamed(first.objects, key)
    top = chain[-2] if len(chain) > 1 else pod
    beside = sorted((first.snapshot.whole - {*chain}) | (first.snapshot.listed - {pod}))
    for key in (*chain, *beside):
        data = first.objects[key]
        parts: list[tuple[Path, str]] = [(("metadata", name), name) for name in _SHORT]
        if key == pod:
            parts.append((("spec", "priorityClassName"), ""))
        elif key not in chain or (
            key in first.snapshot.whole and (key != top or first.reads != Reads.METADATA)
        ):
            parts += [((name,), "") for name in data if name not in _NOT_TRIED]
        for path, short in parts:
            for leaf, others in _leaves(_at(data, path), path):
                shown = f"{_SHORT[short]} {leaf[-1]}" if short else render_path(leaf)
                for other in others:
                    yield f"{key}: {shown}", {**first.objects, key: _with(data, leaf, other)}
        if key in beside:
            yield f"{key}: that it exists", {k: v for k, v in first.objects.items() if k != key}


def _renamed(objects: Objects, key: Key) -> Iterator[tuple[str, Objects]]:
    """Yield the objects with another uid of one of them, in references to it, too."""
    uid = (objects[key].get("metadata") or {}).get("uid")
    if not uid:
        return
    changed = dict(objects)
    for each, data in objects.items():
        metadata = dict(data.get("metadata") or {})
        if each == key:
            metadata["uid"] = f"{uid}x"
        metadata["ownerReferences"] = [
            {**reference, "uid": f"{uid}x"} if reference.get("uid") == uid else reference
            for reference in metadata.get("ownerReferences") or ()
        ]
        changed[each] = {**data, "metadata": metadata}
    yield f"{key}: uid", changed


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the plain values below ``path``, with others to try in their place; the last is nothing at all."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from _leaves(held, (*path, name))
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _leaves(held, (*path, index))
    elif isinstance(value, bool):
        yield path, [not value, None]
    elif isinstance(value, int):
        yield path, [value + 1, None]
    elif isinstance(value, str):
        yield path, [f"{value}x", None]


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def _with(data: Data, path: Path, value: Any) -> Data:
    """Return ``data`` with another value at ``path``, or with nothing there for None; only the way is copied."""
    changed: Any = copy.copy(data)
    holder = changed
    for step in path[:-1]:
        holder[step] = copy.copy(holder[step])
        holder = holder[step]
    if value is not None:
        holder[path[-1]] = value
    elif isinstance(holder, dict):
        del holder[path[-1]]
    return changed  # type: ignore[no-any-return]  # a copy of data


def _key(obj: Object) -> Key:
    return Key(obj.gvk, obj.namespace, obj.name)


def _values(metadata: Metadata, pod: Pod) -> Values:
    """Return what the group has, by name, as it is written in a PodGroup."""
    own = metadata.find_sub_group_for_pod(pod.namespace, pod.name)
    values = {
        "name": metadata.name,
        "owner": f"{metadata.owner.kind} {metadata.owner.name}",
        "queue": metadata.queue,
        "priorityClassName": metadata.priority_class_name,
        "preemptibility": metadata.preemptibility,
        "minMember": metadata.min_available,
        **_topology(metadata),
        "subGroups": [_sub_group(each) for each in metadata.sub_groups],
        "subGroup": own.name if own is not None else "",
        **{f"labels[{name}]": value for name, value in sorted((metadata.labels or {}).items())},
        **{f"annotations[{name}]": value for name, value in sorted((metadata.annotations or {}).items())},
    }
    return {name: value for name, value in values.items() if value not in ("", [])}


def _sub_group(group: SubGroupMetadata) -> Data:
    written: Data = {"name": group.name, "minMember": group.min_available}
    if group.parent is not None:
        written["parent"] = group.parent
    if group.topology_constraints is not None:
        constraint = _topology(group.topology_constraints)
        written["topologyConstraint"] = {name: value for name, value in constraint.items() if value}
    return written


def _topology(holder: Metadata | TopologyConstraintMetadata) -> dict[str, str]:
    return {
        "topology": holder.topology,
        "requiredTopologyLevel": holder.required_topology_level,
        "preferredTopologyLevel": holder.preferred_topology_level,
    }
