# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owner references and finalizers. Each function changes the object it is given, not the server's."""

from __future__ import annotations

from collections.abc import Sequence

from pkg.apis.machinery.gvk import GVK, GroupKind
from pkg.apis.machinery.object import Object, OwnerReference
from pkg.ctrl.reconcile import ControllerError


class OwnerReferenceError(ControllerError):
    """An owner reference cannot be set or removed."""


class AlreadyOwnedError(OwnerReferenceError):
    """Another object controls this one."""

    def __init__(self, obj: Object, owner: OwnerReference) -> None:
        super().__init__(f"Object {obj.key} is already owned by another {owner.kind} controller {owner.name}")
        self.object = obj
        self.owner = owner


def set_controller_reference(owner: Object, controlled: Object, *, block_owner_deletion: bool = True) -> None:
    """Make ``owner`` the one controller of ``controlled``: it is deleted with it, and wakes it when it changes.

    Raises:
        AlreadyOwnedError: another object controls it.
        OwnerReferenceError: an object cannot be owned from another namespace.
    """
    ref = _reference(owner, controlled)
    ref.controller = True
    ref.block_owner_deletion = block_owner_deletion
    existing = controller_of(controlled)
    if existing is not None and not _same(existing, ref):
        raise AlreadyOwnedError(controlled, existing)
    _upsert(ref, controlled)


def set_owner_reference(owner: Object, obj: Object, *, block_owner_deletion: bool | None = None) -> None:
    """Make ``owner`` an owner of ``obj``, replacing what it was before.

    Raises:
        OwnerReferenceError: an object cannot be owned from another namespace.
    """
    ref = _reference(owner, obj)
    ref.block_owner_deletion = block_owner_deletion
    _upsert(ref, obj)


def remove_owner_reference(owner: Object, obj: Object) -> None:
    """Make ``obj`` no longer owned by ``owner``.

    Raises:
        OwnerReferenceError: it was not.
    """
    refs = obj.metadata.owner_references or []
    index = _index(refs, _unchecked(owner))
    if index is None:
        raise OwnerReferenceError(f"{_named(obj)} does not have an owner reference for {_named(owner)}")
    obj.metadata.owner_references = [*refs[:index], *refs[index + 1 :]]


def remove_controller_reference(owner: Object, obj: Object) -> None:
    """Make ``obj`` no longer controlled by ``owner``.

    Raises:
        OwnerReferenceError: ``owner`` does not control it.
    """
    controller = controller_of(obj)
    if controller is None or not _same(controller, _unchecked(owner)):
        raise OwnerReferenceError(f"{_named(obj)} is not controlled by {_named(owner)}")
    remove_owner_reference(owner, obj)


def controller_of(obj: Object) -> OwnerReference | None:
    """Return the reference to what controls ``obj``."""
    return next((ref for ref in obj.metadata.owner_references or () if ref.controller), None)


def has_controller_reference(obj: Object) -> bool:
    """Return whether anything controls ``obj``."""
    return controller_of(obj) is not None


def has_owner_reference(refs: Sequence[OwnerReference] | None, owner: Object) -> bool:
    """Return whether ``owner`` is among the owners, by group, kind and name."""
    return _index(refs or (), _unchecked(owner)) is not None


def contains_finalizer(obj: Object, finalizer: str) -> bool:
    """Return whether ``obj`` has the finalizer."""
    return finalizer in (obj.metadata.finalizers or ())


def add_finalizer(obj: Object, finalizer: str) -> bool:
    """Add the finalizer; return whether it was missing."""
    if contains_finalizer(obj, finalizer):
        return False
    obj.metadata.finalizers = [*(obj.metadata.finalizers or ()), finalizer]
    return True


def remove_finalizer(obj: Object, finalizer: str) -> bool:
    """Remove the finalizer, each time it is there; return whether it was."""
    if not contains_finalizer(obj, finalizer):
        return False
    obj.metadata.finalizers = [name for name in obj.metadata.finalizers or () if name != finalizer]
    return True


def _reference(owner: Object, obj: Object) -> OwnerReference:
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
    return _unchecked(owner)


def _unchecked(owner: Object) -> OwnerReference:
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
