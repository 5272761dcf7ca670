# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Patches that fail only if the values they replace have changed, not if other parts of the object have.

A merge patch with the resourceVersion conflicts with every other write. Without it, it would replace a list that
another writer has just extended. A JSON patch can test the values that it replaces, and the object's uid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from controller_runtime import client
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import JSON, Object
from controller_runtime.machinery.errors import InvalidError
from controller_runtime.machinery.patch import pointer

_SHARED: Final = frozenset({"conditions"})
"""Status fields to which other writers may add."""

_STALE: Final = ("test failed", "nonexistent key", "missing path", "no such key")

Operation = dict[str, JSON]


def replace_status(stored: Object, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> client.Patch:
    """Return the patch that replaces the status ``old`` of ``stored`` by ``new``; ``{}`` is an absent status.

    ``old`` is the status as it is stored: an empty list differs from an absent one in the tests of a JSON patch.
    """
    if not old:
        return _patch(stored, [_test("/status", None), {"op": "add", "path": "/status", "value": new}])
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if not new:  # the server rejects an empty status and accepts an absent one
        tests = [_test(f"/status/{key}", old.get(key)) for key in sorted(_SHARED)]
        return _patch(stored, [*tests, {"op": "remove", "path": "/status"}])
    tests = [_test(f"/status/{key}", old.get(key)) for key in changed if key in _SHARED]
    return _patch(stored, [*tests, *(_set(f"/status/{key}", new.get(key)) for key in changed)])


def replace_owners(live: Object, new: list[OwnerReference]) -> client.Patch:
    """Return the patch that sets the owner references of ``live`` to ``new``."""
    path = "/metadata/ownerReferences"
    old = [each.to_dict() for each in live.metadata.owner_references or ()] or None
    return _patch(live, [_test(path, old), _set(path, [each.to_dict() for each in new])])


def remove_annotation(live: Object, name: str) -> client.Patch:
    """Return the patch that removes an annotation with the value that ``live`` has."""
    path = pointer("metadata", "annotations", name)
    return _patch(live, [_test(path, (live.metadata.annotations or {}).get(name)), _set(path, None)])


def is_stale(error: InvalidError) -> bool:
    """Return True if a patch of this module was refused because the values it replaces have changed."""
    texts = [str(error), *(str(cause.get("message")) for cause in error.causes)]
    return any(sign in text for text in texts for sign in _STALE)


def _patch(obj: Object, operations: list[Operation]) -> client.Patch:
    tests = [_test("/metadata/uid", obj.metadata.uid)] if obj.metadata.uid else []
    return client.raw_patch(client.JSON, msgspec.json.encode([*tests, *operations]))


def _test(path: str, value: JSON) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _set(path: str, value: JSON) -> Operation:
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
