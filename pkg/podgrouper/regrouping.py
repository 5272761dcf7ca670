# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reconciles pods again when an object from which their group is made has changed, although the pods have no event.

An edit of an owner may change the group, and a group may be deleted. Tenants can do both as often as they like, so the
pods are collected for :data:`PERIOD` seconds, wait behind all other pods, and come in portions for each namespace, one
group after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final

import anyio
import msgspec
from controller_runtime import handler, source
from controller_runtime.machinery import LazyObject, NamespacedName, PartialObjectMetadata
from controller_runtime.reconcile import Request

from .plugins import Key

PERIOD: Final = 1.0
"""Seconds for which changes are collected. An owner that changes all the time has its pods regrouped at this rate."""
PORTION: Final = 100
"""Maximum number of pods of a namespace that are reconciled again in each period."""
LATER: Final = 30.0
"""If a group was deleted and so was an owner, its pods are reconciled after this many seconds. Most pods do not exist
then; those that were orphaned need another group.
"""
PATIENCE: Final = 5
"""One pod is to bring a deleted group back. If the group is not back this many periods after the turn of the pod, all
its pods are reconciled.
"""


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, object]] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


@dataclass(slots=True)
class _Group:
    pods: dict[NamespacedName, None] = field(default_factory=dict)
    owners: set[Key] = field(default_factory=set)
    """The owners of the pods, and the other objects from which the group was made."""
    period: int = 0
    """The last period of which a pod was reconciled."""


class Regrouping:
    """Remembers of which objects each group was made."""

    def __init__(self) -> None:
        self._group_of: dict[NamespacedName, NamespacedName] = {}
        self._groups: dict[NamespacedName, _Group] = {}
        self._groups_of: dict[Key, dict[NamespacedName, None]] = {}
        self._changed: dict[Key, None] = {}
        self._deleted: dict[NamespacedName, None] = {}
        self._awaited: dict[NamespacedName, int] = {}
        """Deleted groups that one pod is to bring back, and for how many more periods we wait for them."""
        self._pending: dict[str, dict[NamespacedName, float]] = {}
        """Pods that wait for their turn, by namespace, and after how many seconds they are to be reconciled."""
        self._period = 0
        self._again: dict[NamespacedName, int] = {}
        """Pods in the queue whose owners or group have changed, and the periods in which they were added."""
        self._news = anyio.Event()

    # The objects from which groups are made.

    def note(self, pod: NamespacedName, name: str, reads: Iterable[Key] = ()) -> None:
        """Note the name of a pod's group, and the objects from which the group was made."""
        key = NamespacedName(pod.namespace, name)
        if self._group_of.get(pod) != key:
            self.forget(pod)
            self._group_of[pod] = key
        group = self._groups.setdefault(key, _Group())
        group.pods[pod] = None
        for owner in reads:
            if owner not in group.owners:
                group.owners.add(owner)
                self._groups_of.setdefault(owner, {})[key] = None

    def forget(self, pod: NamespacedName) -> None:
        """Forget a pod that no longer exists or is no longer grouped."""
        self._again.pop(pod, None)
        if (key := self._group_of.pop(pod, None)) is None:
            return
        group = self._groups[key]
        del group.pods[pod]
        if group.pods:
            return
        del self._groups[key]
        for owner in group.owners:
            groups = self._groups_of[owner]
            del groups[key]
            if not groups:
                del self._groups_of[owner]

    def take(self, pod: NamespacedName) -> int:
        """Return the period in which the pod was added to the queue because its owners or its group have changed.

        Return 0 if there was none, and from the second call on.
        """
        return self._again.pop(pod, 0)

    def is_repeated(self, pod: NamespacedName, period: int) -> bool:
        """Return True if the pod need not be reconciled now, because it will be in the next period.

        This is so if another pod of its group was reconciled in this period, and the owners have changed since. Without
        this rule, each pod would write a newer state of the owners into the group.
        """
        if (key := self._group_of.get(pod)) is None:
            return False
        group = self._groups[key]
        if group.period == period:
            return not group.owners.isdisjoint(self._changed)
        group.period = period
        group.pods[pod] = group.pods.pop(pod, None)  # another pod comes first in the next period
        return False

    # Changes.

    def group_created(self, key: NamespacedName) -> None:
        """Wait no more for a deleted group that is back."""
        self._deleted.pop(key, None)
        self._awaited.pop(key, None)

    def group_deleted(self, key: NamespacedName) -> None:
        """Have the pods of the group reconciled."""
        if key in self._groups:
            self._deleted[key] = None
            self._news.set()

    def owner_changed(
        self, key: Key, old: LazyObject[PartialObjectMetadata], new: LazyObject[PartialObjectMetadata]
    ) -> None:
        """Have the pods of an owner reconciled, unless only its status changed."""
        if key in self._groups_of and _essence(old) != _essence(new):
            self.note_change(key)

    def note_change(self, key: Key) -> None:
        """Have the pods of an owner reconciled."""
        if key in self._groups_of:
            self._changed[key] = None
            self._news.set()

    async def feed(self, queue: source.Queue, exists: Callable[[Key], bool] = lambda _key: True) -> None:
        """Add the pods that have to be reconciled to the queue. ``exists`` returns False if an owner is gone."""
        while True:
            await self._news.wait()
            await anyio.sleep(PERIOD)
            self._news = anyio.Event()
            self._period += 1
            self._collect(exists)
            for namespace, pods in list(self._pending.items()):
                portion = {pod: self._group_of.get(pod) for pod in islice(pods, PORTION)}
                # All groups at once would occupy all workers. The pods of one group come together, as they need only
                # one write, and the next group waits as long as its predecessors have pods.
                sizes = Counter(portion.values())
                turns = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
                for pod, group in portion.items():
                    self._again[pod] = self._period
                    after = pods.pop(pod) + turns[group] * PERIOD / PORTION
                    queue.add(Request(*pod), priority=handler.LOW_PRIORITY, after=after)
                if not pods:
                    del self._pending[namespace]
            if self._pending or self._awaited:
                self._news.set()

    def _collect(self, exists: Callable[[Key], bool]) -> None:
        """Move the pods of the changed owners and deleted groups to the pending pods, one pod of each group first."""
        changed, self._changed = self._changed, {}
        deleted, self._deleted = self._deleted, {}
        delays = {group: 0.0 for key in changed for group in self._groups_of.get(key, ())}
        overdue = [key for key, periods in self._awaited.items() if not periods]
        self._awaited = {key: periods - 1 for key, periods in self._awaited.items() if periods}
        delays.update(dict.fromkeys((key for key in overdue if key in self._groups), 0.0))
        for key in deleted:
            if (group := self._groups.get(key)) is None:
                continue
            if not all(map(exists, group.owners)):
                delays[key] = LATER
            elif key not in delays:
                pending = self._pending.setdefault(key.namespace, {})
                self._awaited[key] = PATIENCE + len(pending) // PORTION
                pending.setdefault(next(iter(group.pods)), 0.0)
        groups = [(self._groups[key].pods, delay) for key, delay in delays.items()]
        for pods, delay in (*((islice(pods, 1), delay) for pods, delay in groups), *groups):
            for pod in pods:
                self._pending.setdefault(pod.namespace, {})[pod] = delay


def _essence(obj: LazyObject[PartialObjectMetadata]) -> tuple[object, ...]:
    """Return the metadata that changes with everything but the status of an object."""
    seen = obj.view(_Object)
    metadata = obj.metadata if seen is None else seen.metadata
    return (
        metadata.generation or metadata.resource_version,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
    )
