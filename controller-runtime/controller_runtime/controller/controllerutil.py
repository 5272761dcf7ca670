# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Set owner references and finalizers, and bring an object into a desired state.

Functions for references and finalizers change only the object passed in, not the stored object.
:func:`create_or_update` and :func:`create_or_patch` write to the API server, and do not change the object passed in.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from controller_runtime import client
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, GroupKind, Object, arguments
from controller_runtime.machinery.equality import deep_equal
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.patch import merge_patch_diff
from controller_runtime.reconcile import ControllerError

T = TypeVar("T", bound=Object)
Mutate = Callable[[T], None]
"""Changes an object into its desired state. It must not change the name or the namespace."""


class OperationResult(enum.StrEnum):
    """The operation that brought an object into its desired state."""

    NONE = "unchanged"
    CREATED = "created"
    UPDATED = "updated"
    UPDATED_STATUS = "updatedStatus"
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


async def create_or_update(
    writer: client.ReaderWriter, obj: T, mutate: Mutate[T]
) -> tuple[T, OperationResult]:
    """Read the object with the key of ``obj``, apply ``mutate``, and write the object if it is new or has changed.

    Return the object and the operation. ``mutate`` gets a copy of the stored object, or of ``obj`` if none is stored.
    Changes that ``mutate`` makes to the status are lost if the status is a subresource. If ``mutate`` unsets a field
    for which the server has a default, every call sends an update.

    Raises:
        ControllerError: ``mutate`` changed the name or the namespace.
        TypeError: ``mutate`` is ``async``, or returns another object instead of changing its argument.
        ConflictError: the object has changed since it was read.
        AlreadyExistsError: the object was created after it was read.
    """
    before = await _stored(writer, obj)
    desired = _mutated(obj if before is None else before, mutate)
    if before is None:
        return await writer.create(desired), OperationResult.CREATED
    if deep_equal(before, desired):
        return before, OperationResult.NONE
    return await writer.update(desired), OperationResult.UPDATED


async def create_or_patch(client_: client.Client, obj: T, mutate: Mutate[T]) -> tuple[T, OperationResult]:
    """Work like :func:`create_or_update`, but send only the changes, as merge patches of the object and of its status.

    There are no conflicts. If another writer changes the object at the same time, its changes are kept in all fields
    that ``mutate`` does not change; a list counts as one field. If the object is created, its status is not patched.

    Raises:
        ControllerError: ``mutate`` changed the name or the namespace.
        TypeError: ``mutate`` is ``async``, or returns another object instead of changing its argument.
        AlreadyExistsError: the object was created after it was read.
    """
    before = await _stored(client_, obj)
    desired = _mutated(obj if before is None else before, mutate)
    if before is None:
        return await client_.create(desired), OperationResult.CREATED
    changes = {} if deep_equal(before, desired) else merge_patch_diff(before.to_dict(), desired.to_dict())
    status = {"status": changes.pop("status")} if "status" in changes else None
    result, stored = OperationResult.NONE, before
    if changes:
        stored = await client_.patch(desired, client.raw_patch(client.MERGE, msgspec.json.encode(changes)))
        result = OperationResult.UPDATED
    if status is not None:
        patch = client.raw_patch(client.MERGE, msgspec.json.encode(status))
        stored = await client_.status.patch(desired, patch)
        result = OperationResult.UPDATED_STATUS if changes else OperationResult.UPDATED_STATUS_ONLY
    return stored, result


class OwnerReferenceError(ControllerError):
    """An owner reference cannot be set or removed."""


class AlreadyOwnedError(OwnerReferenceError):
    """Another object controls this one."""

    def __init__(self, obj: Object, owner: OwnerReference) -> None:
        super().__init__(f"Object {obj.key} is already owned by another {owner.kind} controller {owner.name}")
        self.object = obj
        self.owner = owner


def set_controller_reference(owner: Object, controlled: Object, *, block_owner_deletion: bool = True) -> None:
    """Make ``owner`` the only controller of ``controlled``.

    When ``owner`` is deleted, the garbage collector deletes ``controlled``. When ``controlled`` changes, a controller
    that ``owns`` this kind reconciles ``owner``.

    Raises:
        AlreadyOwnedError: another object controls ``controlled``.
        OwnerReferenceError: ``owner`` is namespaced, and ``controlled`` is not in the same namespace.
    """
    ref = _reference(owner, controlled)
    ref.controller = True
    ref.block_owner_deletion = block_owner_deletion
    existing = controller_of(controlled)
    if existing is not None and not _same(existing, ref):
        raise AlreadyOwnedError(controlled, existing)
    _upsert(ref, controlled)


def set_owner_reference(owner: Object, obj: Object, *, block_owner_deletion: bool | None = None) -> None:
    """Make ``owner`` an owner of ``obj``, replacing an earlier reference to ``owner``.

    Raises:
        OwnerReferenceError: ``owner`` is namespaced, and ``obj`` is not in the same namespace.
    """
    ref = _reference(owner, obj)
    ref.block_owner_deletion = block_owner_deletion
    _upsert(ref, obj)


def remove_owner_reference(owner: Object, obj: Object) -> None:
    """Remove the reference to ``owner`` from ``obj``.

    Raises:
        OwnerReferenceError: ``owner`` is not an owner of ``obj``.
    """
    refs = obj.metadata.owner_references or []
    index = _index(refs, owner_reference(owner))
    if index is None:
        raise OwnerReferenceError(f"{_named(obj)} does not have an owner reference for {_named(owner)}")
    obj.metadata.owner_references = [*refs[:index], *refs[index + 1 :]]


def remove_controller_reference(owner: Object, obj: Object) -> None:
    """Remove the reference to ``owner``, which must be the controller of ``obj``.

    Raises:
        OwnerReferenceError: ``owner`` does not control ``obj``.
    """
    controller = controller_of(obj)
    if controller is None or not _same(controller, owner_reference(owner)):
        raise OwnerReferenceError(f"{_named(obj)} is not controlled by {_named(owner)}")
    remove_owner_reference(owner, obj)


def controller_of(obj: Object) -> OwnerReference | None:
    """Return the reference to the controller of ``obj``, or None."""
    client.check_object(obj)
    return next((ref for ref in obj.metadata.owner_references or () if ref.controller), None)


def has_controller_reference(obj: Object) -> bool:
    """Return whether an object controls ``obj``."""
    return controller_of(obj) is not None


def has_owner_reference(refs: Sequence[OwnerReference] | None, owner: Object) -> bool:
    """Return whether one of ``refs`` has the group, kind and name of ``owner``."""
    return _index(refs or (), owner_reference(owner)) is not None


def contains_finalizer(obj: Object, finalizer: str) -> bool:
    """Return whether ``obj`` has the finalizer."""
    client.check_object(obj)
    return finalizer in (obj.metadata.finalizers or ())


def add_finalizer(obj: Object, finalizer: str) -> bool:
    """Add the finalizer; return whether it was missing."""
    if contains_finalizer(obj, finalizer):
        return False
    obj.metadata.finalizers = [*(obj.metadata.finalizers or ()), finalizer]
    return True


def remove_finalizer(obj: Object, finalizer: str) -> bool:
    """Remove all occurrences of the finalizer; return whether there was one."""
    if not contains_finalizer(obj, finalizer):
        return False
    obj.metadata.finalizers = [name for name in obj.metadata.finalizers or () if name != finalizer]
    return True


async def _stored(reader: client.Reader, obj: T) -> T | None:
    client.check_object(obj)
    try:
        return await reader.get(type(obj), obj.key)
    except NotFoundError:
        return None


def _mutated(obj: T, mutate: Mutate[T]) -> T:
    arguments.must_be_plain(mutate)
    desired = obj.deep_copy()
    returned: object = mutate(desired)  # type: ignore[func-returns-value]  # a caller's function may return one
    if returned is not desired and Object in type(returned).__mro__:
        raise TypeError("mutate must change its argument: the object that it returns is not used")
    if desired.key != obj.key:
        raise ControllerError(
            f"{_named(obj)}: mutate must not change name or namespace, made it {desired.key}"
        )
    return desired


def _reference(owner: Object, obj: Object) -> OwnerReference:
    client.check_object(owner, "owner")
    client.check_object(obj)
    if owner.namespace and not obj.namespace:
        raise OwnerReferenceError(
            "cluster-scoped resource must not have a namespace-scoped owner, "
            f"owner's namespace {owner.namespace}"
        )
    if owner.namespace and owner.namespace != obj.namespace:
        raise OwnerReferenceError(
            "cross-namespace owner references are disallowed, "
            f"owner's namespace {owner.namespace}, obj's namespace {obj.namespace}"
        )
    return owner_reference(owner)


def owner_reference(owner: Object) -> OwnerReference:
    """Return the reference to ``owner``, for ``metadata.ownerReferences`` of an object.

    The kind is that of the class, so ``owner`` may lack ``apiVersion`` and ``kind``. Nothing is checked; use
    :func:`set_owner_reference` or :func:`set_controller_reference` for objects of this program.
    """
    client.check_object(owner, "owner")
    gvk = type(owner).gvk
    return OwnerReference(
        api_version=gvk.api_version, kind=gvk.kind, name=owner.name, uid=owner.metadata.uid or ""
    )


def _upsert(ref: OwnerReference, obj: Object) -> None:
    refs = list(obj.metadata.owner_references or ())
    index = _index(refs, ref)
    if index is None:
        refs.append(ref)
    else:
        refs[index] = ref
    obj.metadata.owner_references = refs


def _index(refs: Sequence[OwnerReference], ref: OwnerReference) -> int | None:
    return next((index for index, other in enumerate(refs) if _same(other, ref)), None)


def _same(a: OwnerReference, b: OwnerReference) -> bool:
    group_kind = _group_kind(a)
    return group_kind is not None and group_kind == _group_kind(b) and a.name == b.name


def _group_kind(ref: OwnerReference) -> GroupKind | None:
    try:
        return GVK.parse(ref.api_version, ref.kind).group_kind
    except ValueError:
        return None


def _named(obj: Object) -> str:
    return f"{type(obj).gvk.kind} {obj.key}"
