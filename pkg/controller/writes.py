# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's patches and deletions, and the errors that are raised when a write has to wait.

The patches are JSON patches, which test the object's uid and the values that they replace: they fail only if these have
changed. A merge patch with a resourceVersion would fail after every other write. A merge patch without a
resourceVersion would overwrite a list that another writer has just extended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from controller_runtime import client
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import JSON, Object
from controller_runtime.machinery.errors import InvalidError, StatusError
from controller_runtime.machinery.patch import pointer

SOON: Final = timedelta(seconds=1)
UNTIL_DELETED: Final = timedelta(seconds=10)

_SHARED: Final = frozenset({"conditions"})
"""Status fields to which other writers may add."""

Operation = dict[str, JSON]


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


def replace_status(stored: Object, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> client.Patch:
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


def replace_owners(live: Object, new: list[OwnerReference]) -> client.Patch:
    """Return the patch that sets the owner references of ``live`` to ``new``."""
    path = "/metadata/ownerReferences"
    old = [each.to_dict() for each in live.metadata.owner_references or ()] or None
    return _patch(live, [_test(path, old), _set(path, [each.to_dict() for each in new])])


def remove_annotation(live: Object, name: str) -> client.Patch:
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
    writer: client.Writer, live: Object, propagation: client.Propagation, *, unchanged: bool = False
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


def _patch(obj: Object, operations: list[Operation]) -> client.Patch:
    tests = [_test("/metadata/uid", obj.metadata.uid)] if obj.metadata.uid else []
    return client.raw_patch(client.JSON, msgspec.json.encode([*tests, *operations]))


def _test(path: str, value: JSON) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _set(path: str, value: JSON) -> Operation:
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
