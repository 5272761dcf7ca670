# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the objects a TrainJob wants, and sends nothing whose answer is known.

What was applied is remembered by the TrainJob's key in two digests: of the desired object, and of the
live one that came of it. While both are the same there is nothing to do. When the live object differs,
only a difference in what may change is worth a request; so it is after a restart, with nothing remembered.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pkg.apis.core.v1 import ConfigMap, Secret
from pkg.apis.machinery.errors import NotFoundError
from pkg.apis.machinery.gvk import GVK, NamespacedName
from pkg.apis.machinery.object import Object, metadata_only
from pkg.constants import trainer as constants
from pkg.ctrl import log
from pkg.ctrl.client import Client

from . import drift

T = TypeVar("T", bound=Object)

_AS_METADATA: Final[frozenset[GVK]] = frozenset({ConfigMap.gvk, Secret.gvk})
"""Kinds that are cached without their content: their resourceVersion stands for it."""


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
    """Server-side apply with a memory."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[NamespacedName, dict[tuple[GVK, NamespacedName], _Applied]] = {}

    def forget(self, owner: NamespacedName) -> None:
        """Drop what was remembered for ``owner``; the next apply looks at everything again."""
        self._applied.pop(owner, None)

    async def apply(self, owner: NamespacedName, desired: T) -> Outcome:
        """Make the live object what ``desired`` says, as field owner ``trainer``; tell what that took.

        An object that is being deleted is left alone: its end wakes the owner again.

        Raises:
            StatusError: the API server refused.
            TransportError: it was not reached.
        """
        memory = self._applied.setdefault(owner, {})
        name = (desired.gvk, desired.key)
        wanted = _digest(desired.to_dict())
        live = await self._live(desired)
        if live is None:
            outcome = Outcome.HEALED if name in memory else Outcome.CREATED
            memory[name] = _Applied(wanted, _live_digest(await self._send(desired)))
            return outcome
        if live.metadata.deletion_timestamp is not None:
            return Outcome.UNCHANGED
        seen = _Applied(wanted, _live_digest(live))
        known = memory.get(name)
        if known == seen:
            return Outcome.UNCHANGED
        same_desired = known is not None and known.desired == wanted
        to_send = self._difference(live, desired, same_desired=same_desired)
        if to_send is None:
            memory[name] = seen
            return Outcome.UNCHANGED
        memory[name] = _Applied(wanted, _live_digest(await self._send(to_send)))
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

    async def _live(self, desired: Object) -> Object | None:
        kind: type[Object] = type(desired)
        if desired.gvk in _AS_METADATA:
            kind = metadata_only(kind)
        try:
            return await self._client.get(kind, desired.key)
        except NotFoundError:
            return None

    async def _send(self, obj: T) -> T:
        log.logger_from().debug("Applying", kind=obj.gvk.kind, object=str(obj.key))
        return await self._client.apply(obj, field_owner=constants.FIELD_OWNER, force=True)


def _live_digest(obj: Object) -> bytes:
    if obj.gvk in _AS_METADATA:
        return f"{obj.metadata.uid}/{obj.metadata.resource_version}".encode()
    return _digest(drift.content(obj.to_dict()))


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(data, order="sorted"), digest_size=16).digest()
