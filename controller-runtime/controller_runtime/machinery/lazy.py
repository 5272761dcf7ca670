# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LazyObject: an object that is kept as JSON text until it is read.

Watch events, cached reads and responses to writes contain lazy objects. Most handlers and writers need only a key, a
version or an owner, and decoding an object costs a hundred times as much as extracting these from its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec

from .base import Struct
from .gvk import NamespacedName
from .meta import ObjectMeta, OwnerReference
from .object import Object

parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Returns the fields of a JSON object as texts. Raises msgspec.DecodeError or RecursionError for any other text."""

_NULL: Final = b"null"

S = TypeVar("S", bound=Struct)
T = TypeVar("T", bound=Object)
V = TypeVar("V", bound=msgspec.Struct)
T_co = TypeVar("T_co", bound=Object, covariant=True)


class Owner(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An owner reference read from the text of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


Owners = Sequence[Owner | OwnerReference]


class LazyObject(Generic[T_co]):
    """An object of class ``kind``. Each part is decoded on first read, and at most once.

    Several readers may share it, so the returned values must not be changed. Decoding raises
    ``pydantic.ValidationError`` if the text does not match ``kind``; a subclass may limit the work and raise its own
    error.
    """

    __slots__ = ("_metadata", "_object", "_view", "kind", "own_write", "text")

    def __init__(self, kind: type[T_co], text: bytes | None = None, known: T_co | None = None) -> None:
        """``known`` is the decoded object; without it, ``text`` is required."""
        self.kind = kind
        self.text = text
        self.own_write = False
        """True if a write through the cache's own client produced this state, without any later change."""
        self._object = known
        self._metadata: ObjectMeta | None = None
        self._view: msgspec.Struct | None = None

    @staticmethod
    def of(obj: T | LazyObject[T]) -> LazyObject[T]:
        """Return a decoded object as a lazy one."""
        return obj if isinstance(obj, LazyObject) else LazyObject(type(obj), known=obj)

    @property
    def known(self) -> T_co | None:
        """The object if it is already decoded."""
        return self._object

    @property
    def object(self) -> T_co:
        """The object."""
        if self._object is None:
            self._object = self._decode()
        return self._object

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata, possibly without ``managedFields``. The rest is not decoded and may be malformed."""
        if self._object is not None:
            return self._object.metadata
        if self._metadata is None:
            self._metadata = self._decode_metadata()
        return self._metadata

    def part(self, name: str, kind: type[S]) -> S:
        """Return the field ``name``, which is the same in JSON and of class ``kind``; empty if it is absent.

        The rest of the object is not decoded, and may be malformed.
        """
        if self._object is None and (decoded := self._decode_part(name, kind)) is not None:
            return decoded
        held: S = getattr(self.object, name)
        return held

    def view(self, shape: type[V]) -> V | None:
        """Return the fields that ``shape`` declares; the readers of one shape share it.

        None if the whole object is to be read instead: it is decoded already, or its text does not fit ``shape``.
        """
        if self._object is not None:
            return None
        if type(self._view) is not shape:
            try:
                self._view = self._decode_view(shape)
            except (msgspec.DecodeError, RecursionError):
                return None  # decoding the object reports the error
        return self._view

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.metadata.namespace or "", self.metadata.name or "")

    @property
    def uid(self) -> str:
        """``metadata.uid``, or the empty string."""
        return self.metadata.uid or ""

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``, or the empty string."""
        return self.metadata.resource_version or ""

    @property
    def owner_references(self) -> Owners:
        """The owner references; reading them costs a tenth of reading :attr:`metadata`."""
        if self._object is None and self._metadata is None and self.text is not None:
            try:
                return _decode_owned(self.text).metadata.owner_references or ()
            except msgspec.DecodeError:
                pass  # decoding the metadata reports the error
        return self.metadata.owner_references or ()

    def _decode(self) -> T_co:
        return self.kind.from_json(self.text or b"")

    def _decode_view(self, shape: type[V]) -> V | None:
        """Return the view; None if the whole object is to be decoded."""
        seen: V = _viewer(shape).decode(self.text or b"")
        return seen

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        """Return the field; None if the whole object is to be decoded."""
        text = bytes(parts(self.text or b"").get(name, _NULL))
        return kind() if text == _NULL else kind.from_json(text)

    def _decode_metadata(self) -> ObjectMeta:
        return ObjectMeta.from_json(metadata_text(self.text or b""))


@lru_cache(maxsize=64)
def _viewer(shape: type[V]) -> msgspec.json.Decoder[V]:
    return msgspec.json.Decoder(shape)


def metadata_text(text: bytes) -> bytes:
    """Return the text of an object's metadata. Raises like :func:`parts`; KeyError if there is none."""
    return bytes(parts(text)["metadata"])


class _OwnedMeta(msgspec.Struct, rename="camel"):
    owner_references: list[Owner] | None = None


class _Owned(msgspec.Struct):
    metadata: _OwnedMeta


_decode_owned: Final = msgspec.json.Decoder(_Owned).decode
