# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches: what changed against an earlier copy, or bytes that somebody made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from pkg.apis.machinery import base
from pkg.apis.machinery.object import Object

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class RawPatch:
    """A patch whose bytes are given."""

    content_type: str
    body: bytes

    def data(self, obj: Object) -> bytes:
        """Return the bytes, whatever ``obj`` holds."""
        del obj
        return self.body


@dataclass(frozen=True, slots=True)
class MergePatch:
    """The merge patch that turns ``old`` into the object that is sent."""

    old: Object
    optimistic_lock: bool = False

    @property
    def content_type(self) -> str:
        """A merge patch."""
        return MERGE

    def data(self, obj: Object) -> bytes:
        """Return the changes from ``old`` to ``obj``; ``{}`` when there are none."""
        patch = merge_diff(self.old.to_dict(), obj.to_dict())
        if self.optimistic_lock:
            version = self.old.metadata.resource_version
            if not version:
                raise ValueError(f"{obj.key}: an optimistic lock needs a resourceVersion")
            patch.setdefault("metadata", {})["resourceVersion"] = version
        return msgspec.json.encode(patch)


def merge_from(old: Object, *, optimistic_lock: bool = False) -> MergePatch:
    """Return a patch of what a later copy changed against ``old``, which must not be changed meanwhile.

    With ``optimistic_lock`` the server refuses it (ConflictError) unless the object is still ``old``.
    """
    return MergePatch(old, optimistic_lock)


def raw_patch(content_type: str, body: bytes) -> RawPatch:
    """Return a patch of given bytes; see :data:`MERGE`, :data:`JSON`, :data:`STRATEGIC`, :data:`APPLY`."""
    return RawPatch(content_type, body)


def merge_diff(old: dict[str, base.JSON], new: dict[str, base.JSON]) -> dict[str, base.JSON]:
    """Return the RFC 7386 patch from ``old`` to ``new``: lists go whole, what vanished is null."""
    patch: dict[str, base.JSON] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if nested := merge_diff(before, value):
                patch[key] = nested
        elif key not in old or not _same(before, value):
            patch[key] = value
    return patch


def merge(target: base.JSON, patch: base.JSON) -> base.JSON:
    """Return ``target`` changed by an RFC 7386 patch; neither argument is touched, parts may be shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _same(one: base.JSON, other: base.JSON) -> bool:
    # In Python True == 1 and 1 == 1.0; in JSON a boolean is no number.
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
