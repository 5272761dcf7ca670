# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Applies desired objects, and skips requests that would change nothing.

An object is applied if a desired field is missing in the live object or has another value. It is also applied if the
live object has a field that is no longer desired and that an earlier apply may have set. If no apply is needed, a
digest of the desired object and a digest of the live object are remembered. The digests only save requests; without
them, the resulting objects are the same.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from controller_runtime import offload
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import Client, Reader, apply_lazily, peek
from controller_runtime.machinery import GVK, LazyObject, NamespacedName, Object, metadata_only
from controller_runtime.machinery.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    StatusError,
)

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.constants import trainer as constants
from pkg.runtime.interface import GeneratedSecret
from pkg.util import trainjob

from . import drift
from .memory import Memories

_OF_NO_OBJECT: Final = "1"
"""A resourceVersion that no object has, because the first write to any API server gets a higher one.

"0" cannot be used: the API server ignores it in an apply.
"""
_CONFLICTS: Final = 4
"""Maximum number of attempts to undo a webhook's change of an object that other writers keep changing."""
OLD_JOB_SET: Final = (
    "the installed JobSet CRD has no spec.volumeClaimPolicies, which the runtime needs: "
    "install JobSet v0.11 or newer"
)
_UNDECLARED: Final = ".spec.volumeClaimPolicies: field not declared in schema"

T = TypeVar("T", bound=Object)


class _Spec(msgspec.Struct):
    suspend: bool | None = None


class _JobSet(msgspec.Struct):
    spec: _Spec


_AS_METADATA: Final[frozenset[GVK]] = frozenset({ConfigMap.gvk, Secret.gvk})
"""Kinds cached as metadata only. Their resourceVersion identifies their content."""


class Outcome(StrEnum):
    """The result of an apply."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CHANGED = "changed"
    HEALED = "healed"
    """The apply undid the change of another writer, who had deleted the object or changed its applied fields."""
    DELETING = "deleting"
    """The object is being deleted. It was not applied."""


class OldJobSetError(Exception):
    """The installed JobSet is too old for a runtime."""

    needs_no_stack = True


class Applier:
    """Applies objects by server-side apply, and remembers the results.

    ``reader`` reads the content of ConfigMaps and Secrets, because the cache has only their metadata.
    """

    def __init__(self, client: Client, memories: Memories, reader: Reader | None = None) -> None:
        self._client = client
        self.reader: Reader = client if reader is None else reader
        self._memories = memories
        self._old_job_set = False

    def knows(self, owner: NamespacedName, desired: Object, live: Object) -> bool:
        """Return True if ``live`` is remembered as matching ``desired``."""
        known = self._known(owner, desired)
        return known is not None and known == _digests(desired, live)

    def remember_match(self, owner: NamespacedName, desired: Object, live: Object) -> None:
        """Remember that an apply of ``desired`` would not change ``live``."""
        self._remember(owner, desired, _digests(desired, live))

    def _remember(self, owner: NamespacedName, desired: Object, found: tuple[bytes, bytes]) -> None:
        self._memories[owner].matched[desired.gvk, desired.key] = found

    async def apply(self, owner: NamespacedName, desired: Object) -> Outcome:
        """Apply ``desired`` as field owner ``trainer`` if the live object differs, and return the outcome.

        An object that is being deleted is not applied: its deletion enqueues the owner when the object is gone.

        Raises:
            ChildConflictError: the live object has no controller, or another controller than the desired object.
            OldJobSetError: the installed JobSet is too old for the runtime.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        live, pending = await self._compare(owner, desired)
        if not pending:
            deleting = live is not None and live.metadata.deletion_timestamp is not None
            return Outcome.DELETING if deleting else Outcome.UNCHANGED
        known = self._known(owner, desired)
        claims = isinstance(desired, JobSet) and bool(desired.spec.volume_claim_policies)
        try:
            stored = await self._send(desired, live)
        except StatusError as error:
            if claims and _UNDECLARED in str(error):
                self._old_job_set = True
                raise OldJobSetError(OLD_JOB_SET) from error
            raise
        self._old_job_set = self._old_job_set and not claims
        # computed after the request, which should not wait for it
        found = await offload.run_sized(len(stored.text or b""), _digests, desired, stored)
        self._remember(owner, desired, found)
        if known is not None and (live is None or known[0] == found[0]):
            return Outcome.HEALED
        return Outcome.CREATED if live is None else Outcome.CHANGED

    def remark(self) -> str | None:
        """Return a remark for readiness if the installed JobSet is too old for a runtime, otherwise None.

        The manager stays ready, because other TrainJobs run.
        """
        return OLD_JOB_SET if self._old_job_set else None

    async def pending(self, owner: NamespacedName, desired: Object) -> bool:
        """Return True if :meth:`apply` would send a request. Raises the same errors."""
        return (await self._compare(owner, desired))[1]

    async def live(self, desired: Object) -> Object:
        """Return the live object with the name of ``desired``. Of a ConfigMap or Secret, only the metadata is returned.

        Raises:
            NotFoundError: the object does not exist.
        """
        return await offload.decoded(await peek(self._client, cached_kind(desired), desired.key))

    def _known(self, owner: NamespacedName, desired: Object) -> tuple[bytes, bytes] | None:
        return self._memories[owner].matched.get((desired.gvk, desired.key))

    async def _compare(self, owner: NamespacedName, desired: Object) -> tuple[Object | None, bool]:
        """Return the live object or None, and True if an apply is needed."""
        try:
            live = await self.live(desired)
        except NotFoundError:
            return None, True
        trainjob.require_control(live, trainjob.controller_of(desired))
        if live.metadata.deletion_timestamp is not None:
            return live, False
        known = self._known(owner, desired)
        found, in_order = await offload.run_sized(live.decoded_size, _compared, desired, live, known)
        if in_order is None:
            in_order = known is None and await self._content_covers(desired, desired.to_dict())
        if in_order:
            self._remember(owner, desired, found)
        return live, not in_order

    async def _content_covers(self, desired: Object, wire: drift.Wire) -> bool:
        """Read the live object, whose content is not cached, and return True if it has every desired field.

        The content of each object is read once after the manager starts: a read is cheaper than a write.
        """
        try:
            stored = await self.reader.get(type(desired), desired.key)
        except NotFoundError:
            return False
        return drift.covers(drift.content(stored.to_dict()), drift.content(wire))

    async def _send(self, desired: T, live: Object | None) -> LazyObject[T]:
        """Apply ``desired`` and return the resulting live object.

        A running JobSet is returned without being fully decoded. If a webhook changed the result, apply once more,
        except to a running JobSet. If the second apply conflicts with another writer, retry it immediately. Do not
        leave the retry to the next reconcile: while the job runs, a reconcile does not build the PodGroup, and so would
        not repair it.
        """
        try:
            if live is None and isinstance(desired, GeneratedSecret) and not desired.immutable:
                return LazyObject.of(await self._client.create(desired, field_owner=constants.FIELD_OWNER))
            answer = await self._apply(desired, live)
        except AlreadyExistsError as error:
            raise ConflictError(f"{desired.gvk.kind} {desired.key}: it was created meanwhile") from error
        if _runs(answer) or await offload.run_sized(len(answer.text or b""), _covers, answer, desired):
            return answer
        try:
            return await self._apply(desired, answer.object)
        except ConflictError as error:
            return await self._apply_newest(desired, error)

    async def _apply_newest(self, desired: T, error: ConflictError) -> LazyObject[T]:
        """Read the live object from the API server, and apply ``desired`` to it.

        Raise the last conflict if several attempts fail, if the object is being deleted or no longer exists, or if the
        TrainJob no longer controls it.
        """
        for _ in range(_CONFLICTS):
            try:
                found = await self.reader.get(type(desired), desired.key)
                trainjob.require_control(found, trainjob.controller_of(desired))
            except (NotFoundError, trainjob.ChildConflictError):
                break
            if found.metadata.deletion_timestamp is not None:
                break
            try:
                return await self._apply(desired, found)
            except ConflictError as again:
                error = again
        raise error

    async def _apply(self, desired: T, live: Object | None) -> LazyObject[T]:
        """Apply ``desired``, or raise ConflictError if ``live`` has been changed or deleted since it was read.

        A changed object is not applied, because a user may have removed its owner reference on purpose: an apply would
        restore the reference, and the object would be deleted with its owner. If ``live`` is None but the object
        exists, ConflictError is raised, too: another writer has created the object since the cache was read.
        """
        sent = at_no_version(desired) if live is None else at_version_of(desired, live)
        return await apply_lazily(self._client, sent, field_owner=constants.FIELD_OWNER, force=True)


def cached_kind(desired: Object) -> type[Object]:
    """Return the class as which the cache has objects of the kind of ``desired``."""
    return metadata_only(type(desired)) if desired.gvk in _AS_METADATA else type(desired)


def at_no_version(desired: T) -> T:
    """Return a copy of ``desired`` that can only be applied if the object does not exist yet.

    The copy has a resourceVersion that no object has. If the object exists, the server therefore reports a conflict; if
    not, the server ignores the resourceVersion.
    """
    result = desired.shallow_copy()
    result.metadata = desired.metadata.model_copy(update={"resource_version": _OF_NO_OBJECT})
    return result


def at_version_of(desired: T, live: Object) -> T:
    """Return a copy of ``desired`` that can only be applied while ``live`` is the newest version of the object.

    An empty map in ``desired`` is left out if the same map in ``live`` has entries: see :func:`drift.without_emptied`.
    """
    version = {"uid": live.metadata.uid, "resource_version": live.metadata.resource_version}
    wire = desired.to_dict()
    sent = drift.without_emptied(live.to_dict(), wire)
    result = desired.shallow_copy() if sent == wire else type(desired).from_dict(sent)
    result.metadata = desired.metadata.model_copy(
        update={name: held for name, held in version.items() if held}
    )
    return result


def _runs(answer: LazyObject[Object]) -> bool:
    """Return True if ``answer`` is a JobSet that is not suspended. Only the field ``suspend`` is decoded."""
    if not issubclass(answer.kind, JobSet):
        return False
    seen = answer.view(_JobSet) or answer.object
    return isinstance(seen, _JobSet | JobSet) and not seen.spec.suspend


def _covers(answer: LazyObject[T], desired: T) -> bool:
    """Return True if ``answer`` has all fields of ``desired``."""
    return drift.covers(drift.content(answer.object.to_dict()), drift.content(desired.to_dict()))


def _compared(
    desired: Object, live: Object, known: tuple[bytes, bytes] | None
) -> tuple[tuple[bytes, bytes], bool | None]:
    """Return the digests of both objects, and True if ``live`` needs no apply.

    ``known`` is the remembered pair of digests. The result is None instead of False if ``live`` has only metadata.
    """
    wire = desired.to_dict()
    found = _digest(wire), _digest_of(live)
    if known == found:
        return found, True
    if live.gvk in _AS_METADATA:
        return found, None
    if known is not None and known[0] == found[0]:
        return found, drift.covers(drift.content(live.to_dict()), drift.content(wire))
    # A field that only the live object has may come from an earlier apply: only the server can know.
    return found, drift.equal(drift.content(live.to_dict()), drift.content(wire))


def _digests(desired: Object, live: Object | LazyObject[Object]) -> tuple[bytes, bytes]:
    return _digest(desired.to_dict()), _digest_of(live)


def _digest_of(live: Object | LazyObject[Object]) -> bytes:
    live = LazyObject.of(live)
    metadata = live.metadata
    if live.kind.gvk in _AS_METADATA:
        return f"{metadata.uid}/{metadata.resource_version}".encode()
    # The generation changes with every field except metadata and a status subresource.
    counted = metadata.generation is not None
    wire = {"metadata": metadata.to_dict()} if counted else live.object.to_dict()
    return _digest([metadata.uid, metadata.generation, drift.content(wire)])


def _digest(data: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(data, order="sorted"), digest_size=16).digest()
