# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes that return objects undecoded, for clients that support it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, Unpack

from controller_runtime.machinery import LazyObject, NamespacedName, Object

from . import interfaces
from .options import ApplyOptions, PatchOptions

T = TypeVar("T", bound=Object)


def _with(client: object, method: str) -> Any:
    """Return the client if its class has the method, otherwise None.

    The instance is not checked, because its ``__getattr__`` may return the method of a client that the instance wraps.
    """
    return client if hasattr(type(client), method) else None


def peek(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> Coroutine[Any, Any, LazyObject[T]]:
    """Return the object of ``reader.get``, undecoded if the reader has a method ``peek``.

    The object is shared: do not change it. A cache keeps the objects that were read most recently, so that several
    readers decode each of them only once. Raises like ``reader.get``. If the object does not match ``kind``, the error
    is raised later, when the object is decoded.
    """
    if (peeker := _with(reader, "peek")) is None:
        return _got(reader, kind, key)
    found: Coroutine[Any, Any, LazyObject[T]] = peeker.peek(kind, key)
    return found  # clients wrap each other: a client that only passes a read on should not add a coroutine


async def _got(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> LazyObject[T]:
    return LazyObject.of(await reader.get(kind, key))


async def apply_lazily(
    writer: interfaces.Writer | interfaces.SubResourceClient, obj: T, **options: Unpack[ApplyOptions]
) -> LazyObject[T]:
    """Apply as ``writer.apply`` does. The returned object is undecoded if the writer has a method ``apply_lazily``."""
    if (lazy := _with(writer, "apply_lazily")) is None:
        return LazyObject.of(await writer.apply(obj, **options))
    stored: LazyObject[T] = await lazy.apply_lazily(obj, **options)
    return stored


async def patch_lazily(
    writer: interfaces.Writer | interfaces.SubResourceClient,
    obj: T,
    patch: interfaces.Patch,
    **options: Unpack[PatchOptions],
) -> LazyObject[T]:
    """Patch as ``writer.patch`` does. The returned object is undecoded if the writer has a method ``patch_lazily``."""
    if (lazy := _with(writer, "patch_lazily")) is None:
        return LazyObject.of(await writer.patch(obj, patch, **options))
    stored: LazyObject[T] = await lazy.patch_lazily(obj, patch, **options)
    return stored
