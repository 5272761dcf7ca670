# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The group of a pod, and the causes of its values.

The causes are found by trial. We change a field of an object that was read, or remove an object, and group the pod
again. If values differ now, this field or object is a cause of them. This works for every grouper, including groupers
from other packages.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import pydantic_core
from controller_runtime import client
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.log import captured as capture_logs
from controller_runtime.machinery import GVK, JSON, NamespacedName, Object
from controller_runtime.machinery.errors import ForbiddenError, StatusError
from controller_runtime.machinery.yaml import render_path
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper import (
    ENTRY_POINT_GROUP,
    DirectOwners,
    PluginsHub,
    PodGrouper,
    Rules,
    Settings,
    keeps_group,
    new_plugins_hub,
    rules_of,
)
from pkg.podgrouper.plugins import GroupingError, Reads
from pkg.podgrouper.podgroup import Metadata, pod_group_for
from pkg.why.liveobject import at, maps

from trainerctl.offline.snapshot import Key, Snapshot

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Data = dict[str, JSON]
T = TypeVar("T", bound=Object)

_REPEATED: Final = f"annotations[{kai.TOP_OWNER_METADATA_KEY}]"
"""This annotation repeats the top owner. It is left out of the human-readable output."""
Objects = dict[Key, Data]
Path = tuple[str | int, ...]
REFUSALS: Final = (GroupingError, StatusError)
MOST_TRIES: Final = 2_000
"""We try at most this many changes for one pod. Causes that would need more tries are not found."""
_SPEC: Final = (
    "queue",
    "priorityClassName",
    "preemptibility",
    "minMember",
    "minSubGroup",
    "preemptionDelay",
    "stalenessGracePeriod",
)
"""The fields of the spec that are shown first, in this order."""
_POD_GROUPS: Final = "podgroups.scheduling.run.ai"
_NUMBER: Final = re.compile("[0-9]{1,9}")
_JUNK: Final = "x"
"""Replaces a map or a list, to find out whether the result depends on it."""
_NOT_TRIED: Final = ("apiVersion", "kind", "metadata")
_CLASS_SPELLINGS: Final = ("priority-class", "priority-class-name", "priorityclass", "priorityclassname")
_MEANT: Final = {
    **dict.fromkeys(_CLASS_SPELLINGS, kai.PRIORITY_LABEL_KEY),
    **{f"kai.scheduler/{name}": kai.PRIORITY_LABEL_KEY for name in ("priority", *_CLASS_SPELLINGS)},
    **dict.fromkeys(("preemptibility", "kai.scheduler/preemptible"), kai.PREEMPTIBILITY_LABEL_KEY),
    kai.PREEMPTIBILITY_LABEL_KEY: kai.PREEMPTIBILITY_LABEL_KEY,
    kai.QUEUE_LABEL_KEY: kai.QUEUE_LABEL_KEY,
}
"""Names in lower case that users write for labels of the pod grouper, and the labels. Annotations of these names also
have no effect.
"""
_SHORT: Final = {"labels": "label", "annotations": "annotation"}


@dataclass(slots=True)
class GroupTrace:
    """One pod's group, and the causes of its values."""

    pod: Key
    ignored_because: str = ""
    """The reason why the pod grouper ignores the pod, or an empty text."""
    owners: list[Key] = field(default_factory=list)
    """The owners, from the nearest to the top owner. A pod without owners is its own owner here."""
    grouper: str = ""
    values: Data = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)
    """The causes of each value. If a value has no cause, the grouper has chosen it."""
    missing: list[Key] = field(default_factory=list)
    """Objects that the grouper requested and that do not exist."""
    refusal: str = ""
    """The reason why the pod has no group, or an empty text."""
    hints: list[str] = field(default_factory=list)
    """Labels that have no effect, and the labels that were probably meant; an owner that the role does not permit
    reading.
    """

    def to_dict(self) -> Data:
        data: Data = {"pod": f"{self.pod.namespace}/{self.pod.name}"}
        if self.ignored_because:
            return {**data, "leftAlone": self.ignored_because}
        if self.owners:
            data["owners"] = [
                {"apiVersion": key.kind.api_version, "kind": key.kind.kind, "name": key.name}
                for key in self.owners
            ]
            data["grouper"] = self.grouper
        if self.missing:
            data["missing"] = [str(key) for key in self.missing]
        if self.hints:
            data["hints"] = self.hints
        if self.refusal:
            return {**data, "refused": self.refusal}
        return {**data, "group": self.values, "dueTo": self.sources}

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the rows of the human-readable output: a name, a value, and the causes of the value."""
        if self.ignored_because:
            yield "left alone", self.ignored_because, ""
        if self.owners:
            yield "owners", " → ".join(map(str, self.owners)), ""
            yield "grouper", self.grouper, ""
        for name, value in self.values.items():
            if name == _REPEATED:
                continue
            due = ", ".join(self.sources.get(name, ()))
            if not due and name not in ("owner", "ignored"):
                due = "by default"
            if isinstance(value, list):
                yield name, "", due
                yield from (("", _flow(each), "") for each in value)
            else:
                yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), due
        if self.missing:
            yield "not given", ", ".join(map(str, self.missing)), ""
        yield from (("hint", hint, "") for hint in self.hints)
        if self.refusal:
            yield "refused", self.refusal, ""


def _flow(sub_group: Data) -> str:
    rest = (f"{name} {_flow(held) if isinstance(held, dict) else held}" for name, held in sub_group.items())
    return ", ".join(rest).removeprefix("name ")


async def trace(objects: Objects, pod: Key, settings: Settings) -> GroupTrace:
    """Group a pod of ``objects`` as the manager would, and search for the causes of the result."""
    found = GroupTrace(pod)
    found.ignored_because = _why_ignored(objects, pod, settings)
    if found.ignored_because:
        return found
    first = _Try(objects, pod, settings)
    try:
        found.values = await first.run()
    except REFUSALS as error:
        found.refusal = str(error)
    found.owners, found.grouper = first.owners, first.grouper
    given = {(key.kind.group_kind, key.namespace, key.name) for key in objects}
    found.missing = [
        key
        for key in first.snapshot.missing
        if key.kind != PodGroup.gvk and (key.kind.group_kind, key.namespace, key.name) not in given
    ]
    if settings.namespace_labels and (namespace := _namespace_of(pod)) not in objects:
        found.missing.append(namespace)
    for owner in found.owners:
        if _is_skipped(objects, owner, settings):
            found.ignored_because = f"the annotation {kai.SKIP_POD_GROUPER_KEY} of {owner} is true"
            found.values, found.refusal = {}, ""
            return found
    found.hints = [hint for key in dict.fromkeys((pod, *found.owners)) for hint in _hints(objects[key], key)]
    found.hints += [
        f"the shipped role does not permit reading {key}: the pod is grouped without this owner"
        + (", unless you grant the permission" if key in objects else "")
        for key in first.refused
    ]
    if not found.refusal:
        await _Search(found, first, settings).run()
    return found


def _hints(data: Data, key: Key) -> Iterator[str]:
    for kind in _SHORT:
        for name in at(data, "metadata", kind) or {}:
            meant = _MEANT.get(name.lower())
            if meant is not None and (name, kind) != (meant, "labels"):
                yield f"the {_SHORT[kind]} {name} of {key} has no effect; did you mean the label {meant}?"


def _namespace_of(pod: Key) -> Key:
    return Key(Namespace.gvk, "", pod.namespace)


def _is_skipped(objects: Objects, key: Key, settings: Settings) -> bool:
    """Return True if an annotation of an object excludes its pods. Older rules do not know the annotation."""
    skip = at(objects.get(key), "metadata", "annotations", kai.SKIP_POD_GROUPER_KEY)
    return skip == "true" and settings.rules not in (None, Rules.V0_13)


def _why_ignored(objects: Objects, pod: Key, settings: Settings) -> str:
    decoded = Pod.from_dict(objects[pod])
    scheduler = decoded.spec.scheduler_name or "default-scheduler"
    if scheduler != settings.scheduler_name:
        return f"its scheduler is {scheduler}"
    if not settings.pod_labels.items() <= decoded.labels.items():
        return "podGrouper.podLabelSelector does not select it"
    namespace = objects.get(_namespace_of(pod))
    labels = at(namespace, "metadata", "labels") or {}
    if namespace is not None and not settings.namespace_labels.items() <= labels.items():
        return f"podGrouper.namespaceLabelSelector does not select the namespace {pod.namespace}"
    if _is_skipped(objects, pod, settings):
        return f"its annotation {kai.SKIP_POD_GROUPER_KEY} is true"
    group = decoded.annotations.get(kai.POD_GROUP_ANNOTATION_FOR_POD)
    if group is None or decoded.metadata.owner_references:
        return ""
    stored = objects.get(Key(PodGroup.gvk, pod.namespace, group))
    owners = None if stored is None else PodGroup.from_dict(stored).metadata.owner_references or []
    if not group or keeps_group(decoded, group, owners):
        return f"it has no owner and is already assigned to the group {group}"
    return ""


def with_rules_of(objects: Objects, settings: Settings) -> Settings:
    """Return ``settings``.

    If no rules are set, and the CRD of PodGroup is among ``objects``, set the rules that match this CRD.
    """
    if settings.rules is not None:
        return settings
    for key, data in objects.items():
        if (key.kind.kind, key.name) == ("CustomResourceDefinition", _POD_GROUPS):
            for version in maps(data, "spec", "versions"):
                if version.get("name") == PodGroup.gvk.version:
                    properties = at(version, "schema", "openAPIV3Schema", "properties")
                    return dataclasses.replace(settings, rules=rules_of(properties))
    return settings


def in_referenced_versions(objects: Objects) -> Objects:
    """Return ``objects``, and each owner also in the API version in which an object refers to it.

    An API server serves an object in every version of its kind, and kubectl prints only one of them.
    """
    served = dict(objects)
    versions = {(key.kind.group_kind, key.namespace, key.name): key for key in objects}
    for key, data in objects.items():
        for reference in maps(data, "metadata", "ownerReferences"):
            try:
                kind = GVK.parse(str(reference.get("apiVersion")), str(reference.get("kind")))
            except ValueError:
                continue  # the walk refuses the reference
            wanted = Key(kind, key.namespace, str(reference.get("name")))
            found = versions.get((kind.group_kind, wanted.namespace, wanted.name))
            if wanted in served or found is None:
                continue
            if at(objects[found], "metadata", "uid") == reference.get("uid"):
                served[wanted] = {**objects[found], "apiVersion": kind.api_version}
    return served


class _Permitted:
    """Reads owners. Those of kinds that the shipped role does not permit reading are read only if they were given."""

    def __init__(self, snapshot: Snapshot, hub: PluginsHub, objects: Objects) -> None:
        self._snapshot = snapshot
        self._hub = hub
        self._objects = objects
        self.refused: list[Key] = []
        """The owners that the shipped role does not permit reading."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object.

        Raises:
            ForbiddenError: the role does not permit reading the object, and the object was not given.
            NotFoundError: the object does not exist.
        """
        owner = Key(kind.gvk, *key)
        if owner.kind != Pod.gvk and not self._hub.watches(owner.kind):
            self.refused.append(owner)
            if owner not in self._objects:
                raise ForbiddenError(f"{owner} may not be read", code=403, reason="Forbidden")
        return await self._snapshot.get(kind, key)

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return the objects of a kind."""
        return await self._snapshot.list(kind, **options)


class _Try:
    """Groups the pod once."""

    def __init__(self, objects: Objects, pod: Key, settings: Settings) -> None:
        self.objects = objects
        self.snapshot = Snapshot(objects)
        self.owners: list[Key] = []
        self.refused: list[Key] = []
        self.grouper = ""
        self.reads = Reads.OBJECT
        self._pod = pod
        self._settings = settings

    async def run(self) -> Data:
        hub = new_plugins_hub(self.snapshot, self._settings, found=_installed())
        permitted = _Permitted(self.snapshot, hub, self.objects)
        self.refused = permitted.refused
        grouper = PodGrouper(DirectOwners(permitted, self.snapshot), hub)
        pod = Pod.from_dict(self.objects[self._pod])
        pod.metadata.namespace = self._pod.namespace
        rules = self._settings.rules or Rules.V0_13
        found = await grouper.get_pod_owners(pod, rules)
        self.owners = [
            Key(each.gvk, each.namespace, each.name) for each in found.owners or (found.top_owner,)
        ]
        self.grouper, self.reads = found.grouper.name, found.grouper.reads
        metadata = await found.metadata(pod)
        pool = self._settings.node_pool_label_key
        if pool and pool in pod.labels:
            metadata.labels = {pool: pod.labels[pool], **(metadata.labels or {})}
        return _values(metadata, pod, rules)


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Return the installed groupers. The result is cached, because finding them takes longer than grouping."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


class _Search:
    """Tries changes to all objects that were read, and records which values of the group differ."""

    def __init__(self, trace: GroupTrace, first: _Try, settings: Settings) -> None:
        self._trace = trace
        self._first = first
        self._settings = settings
        self._tries = 0
        self._others: dict[str, list[str]] = {}
        """Causes that are shown only for values without a better one: the length of a list, and labels of the pod
        without which it has no group.
        """

    async def run(self) -> None:
        with capture_logs():  # the values that we try are not the user's
            await self._run()

    async def _run(self) -> None:
        pod, first = self._trace.pod, self._first
        chain = [*self._trace.owners, pod]
        top = chain[-2]
        for key in dict.fromkeys((*chain, *sorted(first.snapshot.whole))):
            if (renamed := _renamed(first.objects, key)) is not None:
                await self._try(renamed, f"{key}: uid")
        beside = sorted((first.snapshot.whole - {*chain}) | (first.snapshot.listed - {pod}))
        for key in dict.fromkeys((*chain, *beside)):
            parts = [("metadata", name) for name in _SHORT]
            if key == pod:
                parts.append(("spec", "priorityClassName"))
            for path in parts:
                await self._look_into(key, path, at(first.objects[key], *path))
            if key != pod and (key in first.snapshot.whole) and (key != top or first.reads != Reads.METADATA):
                for name, value in first.objects[key].items():
                    if name not in _NOT_TRIED:
                        await self._look_into(key, (name,), value)
            if key in beside:
                without = {k: data for k, data in first.objects.items() if k != key}
                await self._try(without, f"{key}: that it exists")
        for name, causes in self._others.items():
            self._trace.sources.setdefault(name, causes)

    async def _look_into(self, key: Key, path: Path, value: JSON) -> None:
        """Try other values for the scalars in ``value``, which is at ``path``.

        The items of a map or list are tried only if the result depends on the map or list, or if it is in the metadata.
        """
        if isinstance(value, dict | list):
            in_metadata = path[0] == "metadata"  # the API server validates its types
            if isinstance(value, list) and value:
                longer = self._changed(key, path, [*value, value[-1]])
                await self._try(longer, f"{key}: {render_path(path)}", self._others)
            if value and (in_metadata or await self._try(self._changed(key, path, _JUNK))):
                for step, below in value.items() if isinstance(value, dict) else enumerate(value):
                    await self._look_into(key, (*path, step), below)
            return
        short = _SHORT.get(str(path[1])) if path[0] == "metadata" else None
        what = f"{key}: {f'{short} {path[-1]}' if short else render_path(path)}"
        for other in _others(value):
            await self._try(self._changed(key, path, other), what)

    def _changed(self, key: Key, path: Path, value: JSON) -> Objects:
        return {**self._first.objects, key: _with(self._first.objects[key], path, value)}

    async def _try(
        self, objects: Objects, cause: str = "", sources: dict[str, list[str]] | None = None
    ) -> bool:
        """Group again, record in ``sources`` the values that differ, and return True if there are any."""
        self._tries += 1
        if self._tries > MOST_TRIES:
            return False
        try:
            values = await _Try(objects, self._trace.pod, self._settings).run()
        except (*REFUSALS, pydantic_core.ValidationError):
            # After this change there is no group, so no value can be compared.
            if cause.startswith(f"{self._trace.pod}: label ") and "subGroup" in self._trace.values:
                causes = self._others.setdefault("subGroup", [])
                causes += [cause] if cause not in causes else []
            return True
        before, sources = self._trace.values, self._trace.sources if sources is None else sources
        changed = [name for name in before.keys() | values.keys() if before.get(name) != values.get(name)]
        for name in changed:
            if name == "ignored":
                continue
            if cause and name in before and cause not in sources.setdefault(name, []):
                sources[name].append(cause)
        return bool(changed)


def _renamed(objects: Objects, key: Key) -> Objects | None:
    """Change the uid of the object ``key``, also in owner references. Return all objects, or None if it has no uid."""
    uid = (objects[key].get("metadata") or {}).get("uid")
    if not uid:
        return None
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
    return changed


def _others(value: JSON) -> list[JSON]:
    """Return the values that we try instead of a scalar. None means that the scalar is removed."""
    match value:
        case bool():
            return [not value, None]
        case int():
            # A group requires one pod if the number is 0 or 1.
            return [value + 1 if value > 0 else 2, None]
        case str():
            return [f"{value}x", None, *([f"{int(value) + 2}"] if _NUMBER.fullmatch(value) else [])]
    return []


def _with(data: Data, path: Path, value: JSON) -> Data:
    """Copy ``data`` and set ``value`` at ``path``. None removes the key of a map. Unchanged parts are shared."""
    changed: JSON = copy.copy(data)
    holder = changed
    for step in path[:-1]:
        holder[step] = copy.copy(holder[step])
        holder = holder[step]
    if value is not None:
        holder[path[-1]] = value
    elif isinstance(holder, dict):
        del holder[path[-1]]
    return changed  # type: ignore[no-any-return]  # a copy of data


def _values(metadata: Metadata, pod: Pod, rules: Rules) -> Data:
    """Return the values of the group as they would be written. The keys are the names of PodGroup's fields."""
    own = metadata.find_sub_group_for_pod(pod.namespace, pod.name)
    spec = pod_group_for(metadata, rules).spec.to_dict()
    values = {
        "name": metadata.name,
        "owner": f"{metadata.owner.kind} {metadata.owner.name}",
        **{name: spec[name] for name in _SPEC if name in spec},
        **spec["topologyConstraint"],
        "subGroups": spec.get("subGroups", []),
        "subGroup": own.name if own is not None else "",
        "ignored": metadata.ignored,
        **{f"labels[{name}]": value for name, value in sorted((metadata.labels or {}).items())},
        **{f"annotations[{name}]": value for name, value in sorted((metadata.annotations or {}).items())},
    }
    return {name: value for name, value in values.items() if value not in ("", [])}
