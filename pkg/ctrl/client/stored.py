# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Writes whose answer stays text until somebody looks at it: most writers want to know little of it, or nothing."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from pkg.apis.machinery.object import Object, ObjectMeta, PartialObjectMetadata

from . import interfaces

T = TypeVar("T", bound=Object)
_decode_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Stored(Generic[T]):
    """An object as the server answered a write with it, decoded as far as it is asked for."""

    __slots__ = ("_object", "kind", "text")

    def __init__(self, kind: type[T], text: bytes | None, obj: T | None = None) -> None:
        self.kind = kind
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
        """The object. pydantic.ValidationError when it has another shape than its kind."""
        if self._object is None:
            obj = self.kind.from_json(self.text or b"")
            if issubclass(self.kind, PartialObjectMetadata):
                obj.api_version, obj.kind = self.kind.gvk.api_version, self.kind.gvk.kind
            self._object = obj
        return self._object

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata, whatever the shape of the rest, perhaps without managedFields, which are most of it.

        Raises:
            pydantic.ValidationError: it has another shape than metadata have.
        """
        if self._object is not None:
            return self._object.metadata
        parts = _decode_parts(_decode_parts(self.text or b"")["metadata"])
        parts.pop("managedFields", None)
        return ObjectMeta.from_json(msgspec.json.encode(parts))


async def apply_lazily(
    writer: interfaces.Writer, obj: T, *, field_owner: str, force: bool = False
) -> Stored[T]:
    """Do as ``writer.apply`` does; a writer that can leaves the answer undecoded."""
    lazily: Any = getattr(writer, "apply_lazily", None)
    if lazily is None:
        return Stored.of(await writer.apply(obj, field_owner=field_owner, force=force))
    stored: Stored[T] = await lazily(obj, field_owner=field_owner, force=force)
    return stored


async def patch_lazily(
    writer: interfaces.Writer | interfaces.SubResourceClient, obj: T, patch: interfaces.Patch
) -> Stored[T]:
    """Do as ``writer.patch`` does; a writer that can leaves the answer undecoded."""
    lazily: Any = getattr(writer, "patch_lazily", None)
    if lazily is None:
        return Stored.of(await writer.patch(obj, patch))
    stored: Stored[T] = await lazily(obj, patch)
    return stored
