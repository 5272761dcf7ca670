# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes that return objects undecoded, for clients that support it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, TypeVar, Unpack

import msgspec

from controller_runtime import rest
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import (
    LazyObject,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Struct,
    errors,
    shape,
)
from controller_runtime.machinery.lazy import metadata_text, parts

from . import interfaces
from .options import ApplyOptions, PatchOptions

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)


class Answer(LazyObject[T]):
    """The object in the response to a request.

    ``object`` raises AnswerError if the response is not an object of ``kind`` called ``name`` (if given) or exceeds the
    limits of ``machinery.shape``, and StatusError if it is a Status that reports a failure. ``metadata`` raises
    AnswerError.
    """

    __slots__ = ("_name",)

    def __init__(self, kind: type[T], text: bytes, *, name: str = "") -> None:
        super().__init__(kind, text)
        self._name = name

    def _decode(self) -> T:
        text = bounded(self.text or b"")
        try:
            obj = rest.decoded(self.kind.from_json, text)
        except rest.AnswerError:
            _check_kind(text, self.kind.gvk.kind)
            raise
        if issubclass(self.kind, PartialObjectMetadata):
            _check_kind(text, "")
            obj.api_version, obj.kind = self.kind.gvk.api_version, self.kind.gvk.kind
        _check_name(obj.name, self._name)
        return obj

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        return None  # an answer is checked as a whole

    def _decode_metadata(self) -> ObjectMeta:
        metadata = rest.decoded(_metadata, self.text or b"")
        _check_name(metadata.name, self._name)
        return metadata


def bounded(text: bytes) -> bytes:
    """Return an object's JSON, without managedFields if only these exceed the limits of ``machinery.shape``.

    Raises:
        AnswerError: the rest exceeds the limits, too; decoding it would block the process.
    """
    if shape.check(text, shape.WIDE) is not None:
        text = rest.decoded(_without_managed_fields, text)
        if (reason := shape.check(text, shape.WIDE)) is not None:
            raise rest.AnswerError(f"the object is not decoded: {reason}")
    return text


def _without_managed_fields(text: bytes) -> bytes:
    whole = parts(text)
    whole["metadata"] = msgspec.Raw(_trimmed_metadata(bytes(whole["metadata"])))
    return msgspec.json.encode(whole)


def _trimmed_metadata(metadata: bytes) -> bytes:
    fields = parts(metadata)
    fields.pop("managedFields", None)
    return msgspec.json.encode(fields)


def _metadata(text: bytes) -> ObjectMeta:
    return ObjectMeta.from_json(bounded(_trimmed_metadata(metadata_text(text))))


def _check_kind(text: bytes, kind: str) -> None:
    """Raise StatusError for a Status of a failure, AnswerError for an object of another kind than ``kind``."""
    found = rest.decoded(_decode_names, text)
    if found.kind == "Status" != kind and found.status != "Success":
        raise errors.from_status(rest.decoded(msgspec.json.decode, text), http_code=500)
    if kind and found.kind and found.kind != kind:
        raise rest.AnswerError(f"the response is a {found.kind}, not a {kind}")


class _Names(msgspec.Struct):
    kind: object = None
    status: object = None


_decode_names: Final = msgspec.json.Decoder(_Names).decode


def _check_name(found: str | None, name: str) -> None:
    if name and found != name:
        raise rest.AnswerError(f"the response is the object {found!r}, not {name!r}")


def _with(client: object, method: str) -> Any:
    """Return the client if its class has the method: ``__getattr__`` may offer one of a client that it wraps."""
    return client if hasattr(type(client), method) else None


def peek(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> Coroutine[Any, Any, LazyObject[T]]:
    """Return the object of ``reader.get`` undecoded, where the reader has a method ``peek``.

    It is shared: do not change it. A cache decodes an object that is read repeatedly only once. Raises like
    ``reader.get``, except that an object of another shape raises when it is decoded.
    """
    if (peeker := _with(reader, "peek")) is None:
        return _got(reader, kind, key)
    found: Coroutine[Any, Any, LazyObject[T]] = peeker.peek(kind, key)
    return found  # clients wrap each other: one that only passes a read on adds no coroutine of its own


async def _got(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> LazyObject[T]:
    return LazyObject.of(await reader.get(kind, key))


async def apply_lazily(writer: interfaces.Writer, obj: T, **options: Unpack[ApplyOptions]) -> LazyObject[T]:
    """Apply as ``writer.apply`` does; return the object undecoded, where the writer has a method of this name."""
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
    """Patch as ``writer.patch`` does; return the object undecoded, where the writer has a method of this name."""
    if (lazy := _with(writer, "patch_lazily")) is None:
        return LazyObject.of(await writer.patch(obj, patch, **options))
    stored: LazyObject[T] = await lazy.patch_lazily(obj, patch, **options)
    return stored
