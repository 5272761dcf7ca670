# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a cache cannot answer.

CacheError
├── CacheNotStartedError    the cache is not started yet, or has stopped
├── CacheSyncTimeoutError   the first list did not arrive in time
├── CacheDegradedError      the kind cannot be listed or watched; other kinds are served
├── NamespaceNotCachedError a read names a namespace that is not cached
├── IndexMissingError       a list names a field that has no index
├── UndecodableObjectError  a stored object cannot be decoded as the requested class
└── BadObjectError          the server sent something that cannot be stored as an object

If an object does not exist, a read raises ``NotFoundError``, like a request to the API server.
"""

from __future__ import annotations

from controller_runtime.machinery import GVK, NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.gojson import quote
from controller_runtime.machinery.raised import ExpectedError


class CacheError(Exception):
    """The base class of the cache's errors."""


class CacheNotStartedError(CacheError):
    """The cache is not started yet, or has stopped."""


class CacheSyncTimeoutError(CacheError, ExpectedError):
    """The first list of a kind did not arrive in time; the message names the cause, if it is known."""


class CacheDegradedError(CacheError, ExpectedError):
    """The server does not serve ``gvk``, denies access to it, or keeps failing for it. The cache keeps retrying."""

    def __init__(self, gvk: GVK, reason: str) -> None:
        super().__init__(f"{gvk.group_kind}: {reason}")
        self.gvk = gvk
        self.reason = reason


class NamespaceNotCachedError(CacheError):
    """The cache is limited to other namespaces, so it is not known whether the object exists."""

    def __init__(self, gvk: GVK, namespace: str) -> None:
        super().__init__(f"{gvk.group_kind}: namespace {namespace!r} is not cached")


class IndexMissingError(CacheError):
    """No index of that name is registered for the kind."""

    def __init__(self, gvk: GVK, field: str) -> None:
        super().__init__(f"{gvk.group_kind}: no index with name {field!r} is registered")


class UndecodableObjectError(CacheError, ExpectedError):
    """A stored object cannot be decoded as the requested class, or is too large to be decoded."""

    def __init__(self, gvk: GVK, key: NamespacedName, reason: str, *, uid: str = "") -> None:
        super().__init__(f"{gvk.group_kind} {key}: {reason}")
        self.gvk = gvk
        self.key = key
        self.uid = uid
        """The uid of the object. With kind, key and uid, an Event can refer to the object."""


class BadObjectError(CacheError, ExpectedError):
    """A part of a list or watch cannot be stored. ``key`` is set if the object's name could be read."""

    def __init__(self, reason: str, key: NamespacedName | None = None) -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.key = key


def not_found(kind: type[Object], key: NamespacedName) -> NotFoundError:
    """Return the error that the API server would send for an object that does not exist."""
    resource = kind.resource
    group_resource = resource.group_resource if resource is not None else str(kind.gvk.group_kind)
    details = {
        "name": key.name,
        "group": kind.gvk.group,
        "kind": resource.plural if resource else kind.gvk.kind,
    }
    error = NotFoundError(
        f"{group_resource} {quote(key.name)} not found", code=404, reason="NotFound", details=details
    )
    error.namespace = key.namespace
    return error
