# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes that return objects undecoded, for clients that support it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeGuard, TypeVar, Unpack, runtime_checkable

import msgspec

from controller_runtime import rest
from controller_runtime.apis.machinery import errors, shape
from controller_runtime.apis.machinery.base import Struct
from controller_runtime.apis.machinery.gvk import NamespacedName
from controller_runtime.apis.machinery.lazy import LazyObject, metadata_text, parts
from controller_runtime.apis.machinery.object import Object, ObjectMeta, PartialObjectMetadata

from . import interfaces
from .options import ApplyOptions, PatchOptions

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
_FOUND: Final[dict[tuple[type, type], bool]] = {}
"""By class and protocol, see :func:`_implements`."""


@runtime_checkable
class LazyReader(Protocol):
    """A Reader that can return objects undecoded."""

    async def get_lazily(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> LazyObject[T]:
        """Return the object as ``get`` does, undecoded; it may be shared."""
        ...


@runtime_checkable
class LazyApplier(Protocol):
    """A Writer whose applies can return objects undecoded."""

    async def apply_lazily(self, obj: T, **options: Unpack[ApplyOptions]) -> LazyObject[T]:
        """Apply as ``apply`` does; return the object undecoded."""
        ...


@runtime_checkable
class LazyPatcher(Protocol):
    """A writer, of objects or a subresource, whose patches can return objects undecoded."""

    async def patch_lazily(
        self, obj: T, patch: interfaces.Patch, **options: Unpack[PatchOptions]
    ) -> LazyObject[T]:
        """Patch as ``patch`` does; return the object undecoded."""
        ...


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


def _implements(cls: type, protocol: type) -> bool:
    """Return True if ``cls`` has the protocol's methods, which Python 3.11 takes 25 us to find out."""
    found = _FOUND.get((cls, protocol))
    if found is None:
        found = _FOUND[cls, protocol] = issubclass(cls, protocol)
    return found


def _is_lazy_reader(obj: object) -> TypeGuard[LazyReader]:
    return _implements(type(obj), LazyReader)


def _is_lazy_applier(obj: object) -> TypeGuard[LazyApplier]:
    return _implements(type(obj), LazyApplier)


def _is_lazy_patcher(obj: object) -> TypeGuard[LazyPatcher]:
    return _implements(type(obj), LazyPatcher)


def get_lazily(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> Coroutine[Any, Any, LazyObject[T]]:
    """Return the object of ``reader.get``, undecoded if the reader supports it.

    The object may be shared: do not change or keep it. Raises like ``reader.get``.
    """
    # Clients wrap each other: one that only passes a read on adds no coroutine of its own, and asks no function
    # whether a class that was met before supports it.
    if _FOUND.get((type(reader), LazyReader)) or _is_lazy_reader(reader):
        lazily: Any = reader
        read: Coroutine[Any, Any, LazyObject[T]] = lazily.get_lazily(kind, key)
        return read
    return _get(reader, kind, key)


async def _get(
    reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]
) -> LazyObject[T]:
    return LazyObject.of(await reader.get(kind, key))


async def peek(reader: interfaces.Reader, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
    """Return the object of :func:`get_lazily`: a cache decodes an object that is read repeatedly only once."""
    return (await get_lazily(reader, kind, key)).object


async def apply_lazily(writer: interfaces.Writer, obj: T, **options: Unpack[ApplyOptions]) -> LazyObject[T]:
    """Apply as ``writer.apply`` does; return the object undecoded if the writer supports it."""
    if _is_lazy_applier(writer):
        return await writer.apply_lazily(obj, **options)
    return LazyObject.of(await writer.apply(obj, **options))


async def patch_lazily(
    writer: interfaces.Writer | interfaces.SubResourceClient,
    obj: T,
    patch: interfaces.Patch,
    **options: Unpack[PatchOptions],
) -> LazyObject[T]:
    """Patch as ``writer.patch`` does; return the object undecoded if the writer supports it."""
    if _is_lazy_patcher(writer):
        return await writer.patch_lazily(obj, patch, **options)
    return LazyObject.of(await writer.patch(obj, patch, **options))
