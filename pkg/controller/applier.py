# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the objects a TrainJob wants, and sends nothing whose answer is known.

What was applied is remembered by the TrainJob's key in two digests: of the desired object, and of the
live one that came of it. While both are the same there is nothing to do. When the live object differs,
only a difference in what may change is worth a request; so it is after a restart, with nothing remembered.

JobSet and PodGroup are not built again for a TrainJob that runs. What was wanted of them last is kept, so that
they are mended all the same when somebody edits them; after a restart that is no longer known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from pkg.apis.core.v1 import ConfigMap, Secret
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.machinery.errors import NotFoundError
from pkg.apis.machinery.gvk import GVK, NamespacedName
from pkg.apis.machinery.object import Object, ObjectMeta, metadata_only
from pkg.apis.schedulerplugins import v1alpha1 as schedulerplugins
from pkg.apis.volcano import v1beta1 as volcano
from pkg.constants import trainer as constants
from pkg.ctrl import log
from pkg.ctrl.client import Client, Reader, apply_lazily, peek

from . import drift

T = TypeVar("T", bound=Object)
Name: TypeAlias = tuple[GVK, NamespacedName]

_AS_METADATA: Final[frozenset[GVK]] = frozenset({ConfigMap.gvk, Secret.gvk})
"""Kinds that are cached without their content: their resourceVersion stands for it."""


_BUILT_ONCE: Final[frozenset[GVK]] = frozenset(
    {JobSet.gvk, schedulerplugins.PodGroup.gvk, volcano.PodGroup.gvk}
)
"""Kinds whose plugins build nothing for a running TrainJob that has one: no change of its runtime reaches it."""


class Outcome(StrEnum):
    """What an apply came to."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CHANGED = "changed"
    HEALED = "healed"
    """Somebody had changed or removed what was applied before."""


class _Applied(NamedTuple):
    desired: bytes
    live: bytes


class Applier:
    """Server-side apply with a memory.

    ``reader`` reads what is cached as metadata alone; it must not be a cache.
    """

    def __init__(self, client: Client, reader: Reader | None = None) -> None:
        self._client = client
        self._reader: Reader = client if reader is None else reader
        self._applied: dict[NamespacedName, dict[Name, _Applied]] = {}
        self._kept: dict[NamespacedName, dict[Name, tuple[type[Object], bytes]]] = {}

    def forget(self, owner: NamespacedName) -> None:
        """Drop what was remembered for ``owner``; the next apply looks at everything again."""
        self._applied.pop(owner, None)
        self._kept.pop(owner, None)

    async def apply(self, owner: NamespacedName, desired: T) -> Outcome:
        """Make the live object what ``desired`` says, as field owner ``trainer``; tell what that took.

        An object that is being deleted is left alone: its end wakes the owner again.

        Raises:
            StatusError: the API server refused.
            TransportError: it was not reached.
        """
        memory = self._applied.setdefault(owner, {})
        name = (desired.gvk, desired.key)
        wire = desired.to_dict()
        wanted = _digest(wire)
        live = await self._live(desired)
        if live is None:
            outcome = Outcome.HEALED if name in memory else Outcome.CREATED
            memory[name] = _Applied(wanted, await self._send(desired))
        else:
            outcome = await self._settle(memory, desired, live, wanted)
        if desired.gvk in _BUILT_ONCE:
            essence = drift.rule_for(desired.gvk).essence(wire)
            self._kept.setdefault(owner, {})[name] = type(desired), msgspec.json.encode(essence)
        return outcome

    async def mend(self, owner: NamespacedName, built: Container[Name]) -> list[GVK]:
        """Undo edits of what ``owner`` wanted once and was not ``built`` this time; return the kinds mended.

        An absent one is made by those who build it.

        Raises:
            StatusError: the API server refused.
            TransportError: it was not reached.
        """
        memory = self._applied.get(owner, {})
        mended = []
        for name, (kind, essence) in self._kept.get(owner, {}).items():
            if name in built or (known := memory.get(name)) is None:
                continue
            try:
                live = await peek(self._client, kind, name[1])
            except NotFoundError:
                continue
            if known.live != _live_digest(live):
                desired = kind.from_dict(msgspec.json.decode(essence))
                if await self._settle(memory, desired, live, known.desired) is Outcome.HEALED:
                    mended.append(name[0])
        return mended

    async def _settle(
        self, memory: dict[Name, _Applied], desired: Object, live: Object, wanted: bytes
    ) -> Outcome:
        """Turn ``live`` into ``desired``, whose digest is ``wanted``; tell what that took."""
        if live.metadata.deletion_timestamp is not None:
            return Outcome.UNCHANGED
        name = (desired.gvk, desired.key)
        seen = _Applied(wanted, _live_digest(live))
        known = memory.get(name)
        if known == seen:
            return Outcome.UNCHANGED
        same_desired = known is not None and known.desired == wanted
        if known is None and live.gvk in _AS_METADATA and await self._holds(desired):
            memory[name] = seen
            return Outcome.UNCHANGED
        to_send = self._difference(live, desired, same_desired=same_desired)
        if to_send is None:
            memory[name] = seen
            return Outcome.UNCHANGED
        memory[name] = _Applied(wanted, await self._send(to_send))
        return Outcome.HEALED if same_desired else Outcome.CHANGED

    def _difference(self, live: Object, desired: T, *, same_desired: bool) -> T | None:
        """Return what to apply to turn ``live`` into ``desired``, or None when nothing would change."""
        if live.gvk in _AS_METADATA:
            return desired
        rule = drift.rule_for(desired.gvk)
        live_wire, desired_wire = live.to_dict(), desired.to_dict()
        if not same_desired and (kept := rule.kept(live_wire, desired_wire)):
            log.logger_from().info("Fields that cannot change are kept", object=str(live.key), fields=kept)
        live_part = rule.mutable(live_wire, desired_wire, live_wire)
        desired_part = rule.mutable(live_wire, desired_wire, desired_wire)
        # A field we no longer want shows only as something the live object has beyond the desired one;
        # it is given up by applying once, and whoever else owns it keeps it.
        settled = same_desired or live_part == desired_part
        if settled and drift.covers(live_part, desired_part):
            return None
        return type(desired).from_dict(rule.compose(live_wire, desired_wire))

    async def _holds(self, desired: Object) -> bool:
        """Tell whether the stored object, of which only the metadata is cached, has all that is desired.

        Asked once for each object after a start: its read is a write less.
        """
        try:
            stored = await self._reader.get(type(desired), desired.key)
        except NotFoundError:
            return False
        return drift.covers(drift.content(stored.to_dict()), desired.to_dict())

    async def _live(self, desired: Object) -> Object | None:
        kind: type[Object] = type(desired)
        if desired.gvk in _AS_METADATA:
            kind = metadata_only(kind)
        try:
            return await peek(self._client, kind, desired.key)
        except NotFoundError:
            return None

    async def _send(self, obj: Object) -> bytes:
        """Apply, and return the digest of the live object that comes of it."""
        log.logger_from().debug("Applying", kind=obj.gvk.kind, object=str(obj.key))
        stored = await apply_lazily(self._client, obj, field_owner=constants.FIELD_OWNER, force=True)
        return _digest_by_metadata(obj.gvk, stored.metadata) or _live_digest(stored.object)


def _live_digest(obj: Object) -> bytes:
    return _digest_by_metadata(obj.gvk, obj.metadata) or _digest(drift.content(obj.to_dict()))


def _digest_by_metadata(gvk: GVK, metadata: ObjectMeta) -> bytes | None:
    """Return the digest of a live object whose metadata is enough to tell that it changed; None when it is not."""
    if gvk in _AS_METADATA:
        return f"{metadata.uid}/{metadata.resource_version}".encode()
    if metadata.generation is not None:
        # The server counts every change but those of metadata, and of a status that is written by itself.
        return _digest([metadata.uid, metadata.generation, drift.content({"metadata": metadata.to_dict()})])
    return None


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(data, order="sorted"), digest_size=16).digest()
