# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Writes objects: applies desired objects, skips requests that would change nothing, and builds patches and deletions.

An object is applied if a desired field is missing in the live object or has another value. It is also applied if the
live object has a field that is no longer desired and that an earlier apply may have set. If no apply is needed, a
digest of the desired object and a digest of the live object are remembered. The digests only save requests; without
them, the resulting objects are the same.

The patches are JSON patches, which test the object's uid and the values that they replace: they fail only if these have
changed. A merge patch with a resourceVersion would fail after every other write. A merge patch without a
resourceVersion would overwrite a list that another writer has just extended.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from controller_runtime import client as ctrl_client
from controller_runtime import offload
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta, OwnerReference
from controller_runtime.client import Client, Reader, apply_lazily, peek
from controller_runtime.machinery import GVK, JSON, LazyObject, NamespacedName, Object, metadata_only
from controller_runtime.machinery.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.patch import pointer
from controller_runtime.machinery.raised import ExpectedError

from pkg.apis.jobset.v1alpha2 import JobSet, JobSetOutline
from pkg.apply.drift import Wire, content, covers, equal, without_emptied
from pkg.constants import trainer as constants
from pkg.runtime.interface import GeneratedSecret
from pkg.util import trainjob

SOON: Final = timedelta(seconds=1)
UNTIL_DELETED: Final = timedelta(seconds=10)
OLD_JOB_SET: Final = (
    "the installed JobSet CRD has no spec.volumeClaimPolicies, which the runtime needs: "
    "install JobSet v0.11 or newer"
)
_UNDECLARED: Final = ".spec.volumeClaimPolicies: field not declared in schema"
_OF_NO_OBJECT: Final = "1"
"""A resourceVersion that no object has, because the first write to any API server gets a higher one.

An apply with it reports a conflict if the object exists; if not, the server ignores it. "0" cannot be used: the API
server ignores it in an apply.
"""
_CONFLICTS: Final = 4
"""Maximum number of further attempts to undo a webhook's change of an object that other writers keep changing."""
_SHARED: Final = frozenset({"conditions"})
"""Status fields to which other writers may add."""
_AS_METADATA: Final[frozenset[GVK]] = frozenset({ConfigMap.gvk, Secret.gvk})
"""Kinds cached as metadata only. Their resourceVersion identifies their content."""

T = TypeVar("T", bound=Object)
Digests = tuple[bytes, bytes]
"""The digest of a desired object, and that of the live object."""


class Outcome(StrEnum):
    """The result of an apply."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CHANGED = "changed"
    HEALED = "healed"
    """The apply undid the change of another writer, who had deleted the object or changed its applied fields."""
    DELETING = "deleting"
    """The object is being deleted. It was not applied."""


class OldJobSetError(ExpectedError):
    """The installed JobSet is too old for a runtime."""


class PendingError(Exception):
    """An object cannot be written yet. Retry when a watch reports a change, at the latest after the time ``after``."""

    def __init__(self, reason: str, after: timedelta = SOON) -> None:
        super().__init__(reason)
        self.after = after


class BeingDeletedError(PendingError):
    """A child is being deleted. A new object with its name is built after the deletion."""

    def __init__(self, live: Object) -> None:
        super().__init__(f"{live.gvk.kind.lower()} {live.key}: it is being deleted", UNTIL_DELETED)
        self.live = live


class _WrittenMetadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, JSON]] | None = None


class _Written(msgspec.Struct):
    """What a digest needs of the answer to an apply. To decode all metadata would take three times as long."""

    metadata: _WrittenMetadata


@dataclass(slots=True)
class Memory:
    """What this process remembers of one unfinished TrainJob.

    If it is lost, requests and events are repeated; the resulting objects are the same.
    """

    arrived: datetime | None = None
    """The time at which the watch delivered the TrainJob."""
    matched: dict[tuple[GVK, NamespacedName], Digests] = field(default_factory=dict)
    """The digests of each child that needs no apply."""
    compared: tuple[str | None, int] | None = None
    """The TrainJob's uid and generation when the TrainJob was last compared with its running JobSet."""
    built: int | None = None
    """The hash of the TrainJob and of its runtime if nothing besides the JobSet is built from them."""
    rebuilt: bytes | None = None
    """The JSON of the desired JobSet for which the previous JobSet was deleted."""
    unstored: int | None = None
    """The number of attempts for which a rebuild has waited until the status contains it."""
    terminating: float = 0.0
    """The time on the event loop's clock before which nothing is created, because the namespace is being terminated."""
    reported: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each event reason, the causes that have been reported and still exist."""


class Memories(defaultdict[NamespacedName, Memory]):
    """The memories by TrainJob."""

    def __init__(self) -> None:
        super().__init__(Memory)


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
        known = self._memories[owner].matched.get((desired.gvk, desired.key))
        return known is not None and known == _digests(desired, live)

    def remember_match(self, owner: NamespacedName, desired: Object, live: Object) -> None:
        """Remember that an apply of ``desired`` would not change ``live``."""
        self._memories[owner].matched[desired.gvk, desired.key] = _digests(desired, live)

    async def apply(self, owner: NamespacedName, desired: Object, *, absent: bool = False) -> Outcome:
        """Apply ``desired`` as field owner ``trainer`` if the live object differs, and return the outcome.

        An object that is being deleted is not applied: its deletion enqueues the owner when the object is gone. With
        ``absent``, the caller has just found that the object does not exist, and it is not looked up again.

        Raises:
            ChildConflictError: the live object has no controller, or another controller than the desired object.
            OldJobSetError: the installed JobSet is too old for the runtime.
            StatusError: the API server refused.
            TransportError: the API server was unreachable.
        """
        live, needed, digest = (None, True, None) if absent else await self._compare(owner, desired)
        if not needed:
            deleting = live is not None and live.metadata.deletion_timestamp is not None
            return Outcome.DELETING if deleting else Outcome.UNCHANGED
        claims = isinstance(desired, JobSet) and bool(desired.spec.volume_claim_policies)
        try:
            stored, body = await self.send(desired, live)
        except StatusError as error:
            if claims and _UNDECLARED in str(error):
                self._old_job_set = True
                raise OldJobSetError(OLD_JOB_SET) from error
            raise
        self._old_job_set = self._old_job_set and not claims
        matched, child = self._memories[owner].matched, (desired.gvk, desired.key)
        known = matched.get(child)
        # computed after the request, which should not wait for it
        digests = await offload.run_sized(len(stored.text or b""), _digests, desired, stored, digest, body)
        matched[child] = digests
        if known is not None and (live is None or known[0] == digests[0]):
            return Outcome.HEALED
        return Outcome.CREATED if live is None else Outcome.CHANGED

    def remark(self) -> str | None:
        """Return a remark for readiness if the installed JobSet is too old for a runtime, otherwise None.

        The manager stays ready, because other TrainJobs run.
        """
        return OLD_JOB_SET if self._old_job_set else None

    async def pending(self, owner: NamespacedName, desired: Object) -> bool:
        """Return True if :meth:`apply` would send a request. Raises the same errors."""
        _, needed, _ = await self._compare(owner, desired)
        return needed

    async def _compare(
        self, owner: NamespacedName, desired: Object
    ) -> tuple[Object | None, bool, bytes | None]:
        """Return the live object, whether an apply is needed, and the digest of ``desired`` if it was computed.

        Of a ConfigMap or Secret, the live object has only the metadata. The content of each of them is read once after
        the manager starts: a read is cheaper than a write.
        """
        try:
            live = await offload.decoded(await peek(self._client, cached_kind(desired), desired.key))
        except NotFoundError:
            return None, True, None
        trainjob.require_control(live, trainjob.controller_of(desired))
        if live.metadata.deletion_timestamp is not None:
            return live, False, None
        matched, child = self._memories[owner].matched, (desired.gvk, desired.key)
        known = matched.get(child)
        digests, matches = await offload.run_sized(live.decoded_size, _compared, desired, live, known)
        if matches is None and known is None:
            try:
                stored = await self.reader.get(type(desired), desired.key)
                matches = covers(content(stored.to_dict()), content(desired.to_dict()))
            except NotFoundError:
                matches = False
        if matches:
            matched[child] = digests
        return live, not matches, digests[0]

    async def send(self, desired: T, live: Object | None) -> tuple[LazyObject[T], bytes | None]:
        """Apply ``desired`` and return the resulting live object, which is not fully decoded if it is a running JobSet.

        Also return the body of the request if it created the object and has the digest of ``desired``.

        The request fails with ConflictError if ``live`` has been changed or deleted since it was read, or if ``live``
        is None and another writer has created the object. A changed object is not applied, because a user may have
        removed its owner reference on purpose: an apply would restore the reference, and the object would be deleted
        with its owner.

        If a webhook changed the result, apply once more, except to a running JobSet. If the second apply conflicts with
        another writer, retry it immediately with the newest live object, unless that object is being deleted, no longer
        exists, or has another controller. Do not leave the retry to the next reconcile: while the job runs, a reconcile
        does not build the PodGroup, and so would not repair it.
        """
        try:
            if live is None and isinstance(desired, GeneratedSecret) and not desired.immutable:
                made = await self._client.create(desired, field_owner=constants.FIELD_OWNER)
                return LazyObject.of(made), None
            sent = _as_new(desired) if live is None else at_version_of(desired, live)
            answer = await apply_lazily(self._client, sent, field_owner=constants.FIELD_OWNER, force=True)
        except AlreadyExistsError as error:
            raise ConflictError(f"{desired.gvk.kind} {desired.key}: it was created meanwhile") from error
        body = None
        if live is None:
            body = (answer.sent if desired.applies_defaults else None) or sent.to_json()
        if issubclass(answer.kind, JobSet):
            seen = answer.view(JobSetOutline) or answer.object
            if isinstance(seen, JobSetOutline | JobSet) and not seen.spec.suspend:
                return answer, body
        if await offload.run_sized(len(answer.text or b""), _answers, answer, desired):
            return answer, body
        newest, attempts = answer.object, 0
        while True:
            try:
                sent = at_version_of(desired, newest)
                return await apply_lazily(
                    self._client, sent, field_owner=constants.FIELD_OWNER, force=True
                ), None
            except ConflictError as error:
                if attempts == _CONFLICTS:
                    raise
                attempts += 1
                try:
                    newest = await self.reader.get(type(desired), desired.key)
                    trainjob.require_control(newest, trainjob.controller_of(desired))
                except (NotFoundError, trainjob.ChildConflictError):
                    raise error from None
                if newest.metadata.deletion_timestamp is not None:
                    raise


def cached_kind(desired: Object) -> type[Object]:
    """Return the class as which the cache has objects of the kind of ``desired``."""
    return metadata_only(type(desired)) if desired.gvk in _AS_METADATA else type(desired)


def at_version_of(desired: T, live: Object) -> T:
    """Return a copy of ``desired`` that can only be applied while ``live`` is the newest version of the object.

    An empty map in ``desired`` is left out if the same map in ``live`` has entries: see :func:`without_emptied`.
    """
    version = {"uid": live.metadata.uid, "resource_version": live.metadata.resource_version}
    wire = desired.to_dict()
    sent = without_emptied(live.to_dict(), wire)
    result = desired.shallow_copy() if sent == wire else type(desired).from_dict(sent)
    result.metadata = desired.metadata.model_copy(
        update={name: value for name, value in version.items() if value}
    )
    return result


def _as_new(desired: T) -> T:
    """Return a copy of ``desired`` that can only be applied if no such object exists.

    If the kind applies its defaults, the JSON of the copy is the body of the request. Digests of desired objects are
    digests of this JSON, because most objects are created and never changed.
    """
    sent, metadata = desired.shallow_copy(), desired.metadata.shallow_copy()
    metadata.resource_version = _OF_NO_OBJECT
    sent.set_unchecked("metadata", metadata)
    return sent


def _answers(answer: LazyObject[T], desired: T) -> bool:
    """Return True if ``answer`` has all fields of ``desired``."""
    return covers(content(answer.object.to_dict()), content(desired.to_dict()))


def _compared(desired: Object, live: Object, known: Digests | None) -> tuple[Digests, bool | None]:
    """Return the digests of both objects, and True if ``live`` needs no apply.

    ``known`` are the remembered digests. The result is None instead of False if ``live`` has only metadata.
    """
    digests = _digests(desired, live)
    if known == digests:
        return digests, True
    if live.gvk in _AS_METADATA:
        return digests, None
    # A field that only the live object has may come from an earlier apply: only the server can know.
    compare = covers if known is not None and known[0] == digests[0] else equal
    return digests, compare(content(live.to_dict()), content(desired.to_dict()))


def _digests(
    desired: Object,
    live: Object | LazyObject[Object],
    digest: bytes | None = None,
    body: bytes | None = None,
) -> Digests:
    """Return the digests of both objects.

    ``digest`` is that of ``desired``, and ``body`` the text of which it is computed, if they are known already.
    """
    if digest is None:
        digest = _digest(_as_new(desired).to_json() if body is None else body)
    live = LazyObject.of(live)
    if live.kind.gvk in _AS_METADATA:
        return digest, f"{live.metadata.uid}/{live.metadata.resource_version}".encode()
    seen = live.view(_Written)
    metadata: _WrittenMetadata | ObjectMeta
    if seen is not None and seen.metadata.generation is not None and seen.metadata.name == desired.name:
        metadata, owners = seen.metadata, seen.metadata.owner_references or []
    else:  # it is decoded already, or reading it reports that it is not the object that was applied
        metadata = live.metadata
        owners = [each.to_dict() for each in metadata.owner_references or ()]
    if metadata.generation is None:
        parts: list[object] = [metadata.uid, content(live.object.to_dict())]
    else:  # it changes with every field except metadata and a status subresource
        labels, annotations = metadata.labels or {}, metadata.annotations or {}
        parts = [metadata.uid, metadata.generation, labels, annotations, owners]
    return digest, _digest(msgspec.json.encode(parts, order="sorted"))


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def replace_status(stored: Object, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> ctrl_client.Patch:
    """Return the patch that replaces ``old``, the status of ``stored``, by ``new``.

    ``{}`` means an absent status. ``old`` must be the status exactly as it is stored: for the tests of a JSON patch, an
    empty list differs from an absent one.
    """
    if not old:
        return _patch(stored, [_test("/status", None), {"op": "add", "path": "/status", "value": new}])
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if not new:  # the server rejects an empty status and accepts an absent one
        tests = [_test(f"/status/{key}", old.get(key)) for key in sorted(_SHARED)]
        return _patch(stored, [*tests, {"op": "remove", "path": "/status"}])
    tests = [_test(f"/status/{key}", old.get(key)) for key in changed if key in _SHARED]
    return _patch(stored, [*tests, *(_set(f"/status/{key}", new.get(key)) for key in changed)])


def replace_owners(live: Object, new: list[OwnerReference]) -> ctrl_client.Patch:
    """Return the patch that sets the owner references of ``live`` to ``new``."""
    path = "/metadata/ownerReferences"
    old = [each.to_dict() for each in live.metadata.owner_references or ()] or None
    return _patch(live, [_test(path, old), _set(path, [each.to_dict() for each in new])])


def remove_annotation(live: Object, name: str) -> ctrl_client.Patch:
    """Return the patch that removes an annotation. The patch fails if the value is no longer the one in ``live``."""
    path = pointer("metadata", "annotations", name)
    return _patch(live, [_test(path, (live.metadata.annotations or {}).get(name)), _set(path, None)])


def raise_if_stale(error: InvalidError, reason: str) -> None:
    """Raise PendingError if a patch was refused because the values that the patch tests have changed.

    Such a refusal names no object, because the patch was not applied. Other refusals name the patched object or fields,
    except those of webhooks, which name their webhook.
    """
    by_webhook = error.message.startswith("admission webhook ")
    if not (error.details.get("kind") or error.causes or by_webhook):
        raise PendingError(reason) from error


def is_immutable_refusal(error: StatusError) -> bool:
    """Return True if a request was refused because it changes an immutable field.

    The API has no machine-readable reason for this, so the messages of the causes are searched for the words
    "is immutable". A webhook may refuse a request without causes: then the message of the error is searched.
    """
    messages = [str(each.get("message")) for each in error.causes] or [error.message]
    return any("is immutable" in each for each in messages)


async def delete(
    writer: ctrl_client.Writer, live: Object, propagation: ctrl_client.Propagation, *, unchanged: bool = False
) -> None:
    """Delete ``live``, but never another object that has its name now. With ``unchanged``, delete only this version.

    Raises:
        ConflictError: another object has the name now, or with ``unchanged``, the object has another version.
        StatusError: the API server refused for another reason.
        TransportError: the API server was unreachable.
    """
    judged = {
        "uid": live.metadata.uid,
        "resourceVersion": live.metadata.resource_version if unchanged else None,
    }
    preconditions = {field: value for field, value in judged.items() if value}
    await writer.delete(live, propagation=propagation, preconditions=preconditions)


def _patch(obj: Object, operations: list[Wire]) -> ctrl_client.Patch:
    tests = [_test("/metadata/uid", obj.metadata.uid)] if obj.metadata.uid else []
    return ctrl_client.raw_patch(ctrl_client.JSON, msgspec.json.encode([*tests, *operations]))


def _test(path: str, value: JSON) -> Wire:
    return {"op": "test", "path": path, "value": value}


def _set(path: str, value: JSON) -> Wire:
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
