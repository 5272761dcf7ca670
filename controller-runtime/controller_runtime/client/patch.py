# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches: made from an earlier copy of an object, or from given bytes."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from controller_runtime.machinery import Object, openapi
from controller_runtime.machinery.patch import Document, merge_patch_diff, strategic_merge_diff

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class RawPatch(msgspec.Struct, frozen=True):
    """A patch with a fixed body."""

    content_type: str
    body: bytes

    def data(self, obj: Object) -> bytes:
        """Return the body, regardless of ``obj``."""
        del obj
        return self.body


class MergePatch(msgspec.Struct, frozen=True):
    """The merge patch that turns ``old`` into the object passed to :meth:`data`."""

    content_type: ClassVar[str] = MERGE
    old: Object
    optimistic_lock: bool = False

    def data(self, obj: Object) -> bytes:
        """Return the changes from ``old`` to ``obj``; ``{}`` if nothing changed.

        Raises:
            ValueError: ``optimistic_lock`` is set, and ``old`` has no resourceVersion.
        """
        patch = self._diff(self.old.to_dict(), obj.to_dict())
        if self.optimistic_lock:
            version = self.old.metadata.resource_version
            if not version:
                raise ValueError(f"{obj.key}: an optimistic lock needs a resourceVersion")
            patch.setdefault("metadata", {})["resourceVersion"] = version
        return msgspec.json.encode(patch)

    _diff = staticmethod(merge_patch_diff)


class StrategicMergePatch(MergePatch, frozen=True):
    """The strategic merge patch that turns ``old`` into the object passed to :meth:`data`."""

    content_type: ClassVar[str] = STRATEGIC
    schema: openapi.MergeSchema = openapi.UNKNOWN

    def _diff(self, old: Document, new: Document) -> Document:
        return strategic_merge_diff(old, new, self.schema)


def merge_from(old: Object, *, optimistic_lock: bool = False) -> MergePatch:
    """Return a merge patch of the changes since ``old``. Do not change ``old`` until the patch is sent.

    With ``optimistic_lock`` the server rejects the patch (ConflictError) if the object has changed since ``old``.
    """
    return MergePatch(old, optimistic_lock)


def strategic_merge_from(old: Object, *, optimistic_lock: bool = False) -> StrategicMergePatch:
    """Return a patch like :func:`merge_from` that contains only the changed items of lists such as ``containers``.

    Items that other writers added to such a list are kept. The API server accepts these patches for Kubernetes' own
    kinds and rejects them for custom resources.

    Raises:
        ValueError: the kind is not one of Kubernetes' own; use :func:`merge_from`.
    """
    schema = openapi.merge_schema_of_kind(type(old).gvk)
    if schema is None:
        raise ValueError(
            f"{type(old).gvk}: strategic merge patches are not supported for this kind; use merge_from"
        )
    return StrategicMergePatch(old, optimistic_lock, schema)


def raw_patch(content_type: str, body: bytes) -> RawPatch:
    """Return a patch with a fixed body of type :data:`MERGE`, :data:`JSON`, :data:`STRATEGIC` or :data:`APPLY`."""
    return RawPatch(content_type, body)
