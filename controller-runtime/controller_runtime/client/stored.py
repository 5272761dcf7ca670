# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Writes whose answer stays text until somebody looks at it: most writers want to know little of it, or nothing."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar, Unpack

import msgspec

from controller_runtime import rest
from controller_runtime.apis.machinery import errors, shape
from controller_runtime.apis.machinery.object import Object, ObjectMeta, PartialObjectMetadata

from . import interfaces
from .options import ApplyOptions, PatchOptions

T = TypeVar("T", bound=Object)
_decode_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Stored(Generic[T]):
    """An object as the server answered a write with it, decoded as far as it is asked for.

    Where ``name`` is given, an object of another name is not what was asked for.
    """

    __slots__ = ("_name", "_object", "kind", "text")

    def __init__(self, kind: type[T], text: bytes | None, obj: T | None = None, *, name: str = "") -> None:
        self.kind = kind
        self._name = name
        self.text = text
        """The answer; None where only the object is known."""
        self._object = obj

    @classmethod
    def of(cls, obj: T) -> Stored[T]:
        """Return a decoded object as one."""
        return cls(type(obj), None, obj)

    @property
    def known(self) -> T | None:
        """The object, if somebody has asked for it before."""
        return self._object

    @property
    def object(self) -> T:
        """The object.

        Raises:
            AnswerError: the answer is not an object of its kind, or exceeds the bounds on its shape.
            StatusError: it is a Status that reports a failure, under a code of success.
        """
        if self._object is None:
            obj = rest.decoded(self.kind.from_json, bounded(self.text or b""))
            if issubclass(self.kind, PartialObjectMetadata):
                _check(obj, "", self._name)
                obj.api_version, obj.kind = self.kind.gvk.api_version, self.kind.gvk.kind
            else:
                _check(obj, self.kind.gvk.kind, self._name)
            self._object = obj
        return self._object

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata, whatever the shape of the rest, perhaps without managedFields, which are most of it.

        Raises:
            AnswerError: the answer is not an object with metadata.
        """
        if self._object is not None:
            return self._object.metadata
        metadata = rest.decoded(_metadata, self.text or b"")
        _check_name(metadata.name, self._name)
        return metadata


def bounded(text: bytes) -> bytes:
    """Return an object's text, without managedFields if only these exceed the bounds on the shape of a text.

    Raises:
        AnswerError: the rest exceeds them, too: decoding it would hold up the process.
    """
    if shape.check(text, shape.WIDE) is not None:
        text = rest.decoded(_without_managed_fields, text)
        if (reason := shape.check(text, shape.WIDE)) is not None:
            raise rest.AnswerError(f"the object is not decoded: {reason}")
    return text


def _without_managed_fields(text: bytes) -> bytes:
    parts = _decode_parts(text)
    parts["metadata"] = msgspec.Raw(_metadata_text(parts))
    return msgspec.json.encode(parts)


def _metadata_text(parts: dict[str, msgspec.Raw]) -> bytes:
    metadata = _decode_parts(parts["metadata"])
    metadata.pop("managedFields", None)
    return msgspec.json.encode(metadata)


def _metadata(text: bytes) -> ObjectMeta:
    return ObjectMeta.from_json(bounded(_metadata_text(_decode_parts(text))))


def _check(obj: Object, kind: str, name: str) -> None:
    """Check that an answer is what was asked for: an object of ``kind`` (if given) called ``name`` (if given)."""
    if obj.kind == "Status" != kind:
        status = obj.to_dict()
        if status.get("status") != "Success":
            raise errors.from_status(status, http_code=500)
    if kind and obj.kind != kind:
        raise rest.AnswerError(f"the answer is a {obj.kind}, not a {kind}")
    _check_name(obj.name, name)


def _check_name(found: str | None, name: str) -> None:
    if name and found != name:
        raise rest.AnswerError(f"the answer is the object {found!r}, not {name!r}")


async def apply_lazily(writer: interfaces.Writer, obj: T, **options: Unpack[ApplyOptions]) -> Stored[T]:
    """Do as ``writer.apply`` does; a writer that can leaves the answer undecoded."""
    lazily: Any = getattr(writer, "apply_lazily", None)
    if lazily is None:
        return Stored.of(await writer.apply(obj, **options))
    stored: Stored[T] = await lazily(obj, **options)
    return stored


async def patch_lazily(
    writer: interfaces.Writer | interfaces.SubResourceClient,
    obj: T,
    patch: interfaces.Patch,
    **options: Unpack[PatchOptions],
) -> Stored[T]:
    """Do as ``writer.patch`` does; a writer that can leaves the answer undecoded."""
    lazily: Any = getattr(writer, "patch_lazily", None)
    if lazily is None:
        return Stored.of(await writer.patch(obj, patch, **options))
    stored: Stored[T] = await lazily(obj, patch, **options)
    return stored
