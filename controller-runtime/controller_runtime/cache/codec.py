# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Entries of a store, made from the texts of lists and watches, which are split without decoding the objects.

An object is kept as compact JSON, without ``apiVersion`` and ``kind``, which its class knows, and without
``managedFields``, which nothing reads. The few metadata fields that indices, selectors and queues need are kept
beside the JSON. Readers and handlers share a :class:`CachedObject`, which decodes the JSON once, when it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio.lowlevel
import msgspec
import pydantic_core

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import JSON, LazyObject, NamespacedName, Object, Struct, raised, rawjson
from controller_runtime.machinery.object import IDENTIFYING
from controller_runtime.machinery.rawjson import metadata_text
from controller_runtime.machinery.rawjson import parts as parts_of

from . import errors
from .store import Entry

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)
S = TypeVar("S", bound=Struct)
V = TypeVar("V", bound=msgspec.Struct)
Transform = Callable[[dict[str, JSON]], dict[str, JSON]]
"""Changes an object's decoded JSON before it is stored, e.g. drops unused fields. Label selectors of reads, indices and
handlers see the result, as in Go. Namespace and name must stay."""

LARGE: Final = 4 << 20
"""Maximum number of bytes of a page that are decoded in one call."""
_ITEMS: Final = b'"items":['
_BEGIN: Final = re.compile(rb'\{(?:"apiVersion":"[^"\\]{1,512}","kind":"[^"\\]{1,256}",)?"metadata":\{')
_HEAD: Final = 4096
"""The first item of a list begins within this many bytes: only the list's kind and metadata come before it."""


class CachedObject(LazyObject[T]):
    """An entry of a store, read as an object of one class. If decoding fails, UndecodableObjectError is raised."""

    __slots__ = ("_failed", "_siblings", "entry")

    def __init__(
        self,
        kind: type[T],
        entry: Entry,
        known: T | None = None,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Wrap ``entry``; ``failed`` is called before a decoding error is raised."""
        # Each event makes two of these, so the fields of the base are set here, too.
        self.kind, self.text, self.own_write = kind, entry.data, False
        self._object, self._metadata, self._only, self._view = known, None, None, None
        self.entry = entry
        self._failed = failed
        self._siblings: list[CachedObject[Any]] | None = None

    @property
    def key(self) -> NamespacedName:
        """Namespace and name, known without decoding."""
        return self.entry.key

    @property
    def uid(self) -> str:
        """The uid, known without decoding."""
        return self.entry.uid

    @property
    def resource_version(self) -> str:
        """The resourceVersion, known without decoding."""
        return self.entry.resource_version

    def as_kind(self, kind: type[K]) -> CachedObject[K]:
        """Return this entry as an object of class ``kind``. The entry is decoded at most once for each class."""
        if kind is self.kind:
            return self  # type: ignore[return-value]  # its class is ``kind``
        if self._siblings is None:
            self._siblings = [self]
        for sibling in self._siblings:
            if sibling.kind is kind:
                return sibling
        made = CachedObject(kind, self.entry)
        made.own_write, made._siblings = self.own_write, self._siblings
        self._siblings.append(made)
        return made

    def mark_own_write(self) -> None:
        """Mark this state as the result of a write by this process."""
        for sibling in self._siblings or (self,):
            sibling.own_write = True

    @property
    def is_decodable(self) -> bool:
        """Whether :attr:`object` can be read."""
        try:
            return self.object is not None
        except errors.UndecodableObjectError:
            return False

    def outline(self) -> CachedObject[T]:
        """Return the object with only its metadata. Use it if the other fields cannot be decoded."""
        return CachedObject(self.kind, self.entry, self.kind.of_metadata(self.metadata))

    def _decode(self) -> T:
        try:
            return self.entry.decode(self.kind)
        except errors.UndecodableObjectError:
            if self._failed is not None:
                self._failed()
            raise

    def _decode_view(self, shape: type[V]) -> V | None:
        return None if self.entry.too_large_reason else super()._decode_view(shape)

    def _decode_part(self, name: str, kind: type[S]) -> S | None:
        if self.entry.too_large_reason:
            return None
        try:
            return super()._decode_part(name, kind)
        except pydantic_core.ValidationError:
            return None  # the caller then decodes the whole object, which raises UndecodableObjectError

    def _decode_only(self, names: tuple[str, ...]) -> T:
        try:
            return self._decode() if self.entry.too_large_reason else super()._decode_only(names)
        except pydantic_core.ValidationError:
            return self._decode()  # which raises UndecodableObjectError

    def _decode_metadata(self) -> ObjectMeta:
        return self.entry.decode_metadata(self.kind)


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class _Spec(msgspec.Struct):
    finalizers: list[str] | None = None


class _Key(msgspec.Struct):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Key


_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_spec = msgspec.json.Decoder(_Spec).decode
_decode_key = msgspec.json.Decoder(_Key).decode
_decode_name = msgspec.json.Decoder(_Named).decode
_encode = msgspec.json.Encoder().encode
_no_labels: Final[dict[str, str]] = {}
MAX_SHARED: Final = 4096
"""Maximum number of strings (namespaces, label keys and label values) that entries share."""
_LONG: Final = 256
_shared: Final[dict[str, str]] = {}


def split_page(body: bytes) -> rawjson.Page:
    """Split a list into its parts. Raises BadObjectError if the list is malformed."""
    try:
        return rawjson.split_page(body)
    except (*rawjson.UNREADABLE, KeyError) as error:
        raise errors.BadObjectError(f"a list of {len(body)} bytes is unreadable: {error}") from error


def entry_of(
    raw: msgspec.Raw | bytes | dict[str, msgspec.Raw],
    transform: Transform | None = None,
    limits: rawjson.Limits = rawjson.DEFAULT,
) -> Entry:
    """Return the entry to store for an object. If the object exceeds ``limits``, keep only its metadata.

    ``raw`` is the text of the object, or its undecoded fields, which are changed.

    Raises:
        BadObjectError: the object has no name, its metadata has the wrong types, or ``transform`` fails on it.
    """
    deep = False
    try:
        try:
            parts = raw if isinstance(raw, dict) else parts_of(raw)
            meta_parts = parts_of(parts["metadata"])
        except RecursionError:
            parts, deep = raw if isinstance(raw, dict) else rawjson.fields(raw), True
            meta_parts = rawjson.fields(parts["metadata"])
        parts.pop("apiVersion", None)
        parts.pop("kind", None)
        if meta_parts.pop("managedFields", None) is not None:
            parts["metadata"] = msgspec.Raw(_encode(meta_parts))
        text = _compact(parts)
        if len(text) > rawjson.SMALL and (reason := rawjson.check(text, limits)) is not None:
            return _outlined(parts["metadata"], meta_parts, reason)
        if deep and (reason := rawjson.Counter(limits).feed(text)) is not None:
            return _outlined(parts["metadata"], meta_parts, reason)
        meta = _decode_meta(parts["metadata"])
        if meta.deletion_timestamp and not meta.finalizers and "spec" in parts:
            meta.finalizers = _finalizers_in(parts["spec"])
    except (*rawjson.UNREADABLE, KeyError) as error:
        reason = "metadata is missing" if isinstance(error, KeyError) else str(error)
        raise errors.BadObjectError(reason, _key_in(raw)) from error
    if transform is not None:
        text, meta.labels = _transformed(text, transform, meta)
    return _entry(meta, text)


def _finalizers_in(spec: msgspec.Raw) -> list[str] | None:
    try:
        return _decode_spec(spec).finalizers
    except rawjson.UNREADABLE:
        return None  # not the spec of a Namespace


def _outlined(metadata: msgspec.Raw, parts: dict[str, msgspec.Raw], reason: str) -> Entry:
    """Return an entry with only the metadata or, if the metadata is large, only its identifying fields."""
    if len(metadata) > rawjson.SMALL:
        metadata = msgspec.Raw(_encode({name: parts[name] for name in IDENTIFYING if name in parts}))
    return _entry(_decode_meta(metadata), _compact({"metadata": metadata}), too_large_reason=reason)


def _transformed(
    untransformed: bytes, transform: Transform, meta: _Meta
) -> tuple[bytes, dict[str, str] | None]:
    """Return the transformed object, and its labels."""
    try:
        text = _compact(transform(msgspec.json.decode(untransformed)))
        after = _decode_meta(parts_of(text)["metadata"])
        if (after.namespace, after.name) != (meta.namespace, meta.name):
            raise ValueError("it changed the namespace or the name")
    except raised.FAILURES as error:
        # This is the caller's code: if it fails on one object, the watch of the kind must not end.
        reason = f"transform: {raised.name(error)}: {raised.text(error)}"
        raise errors.BadObjectError(reason, NamespacedName(meta.namespace, meta.name)) from error
    return text, after.labels


def labels_of(text: bytes) -> dict[str, str]:
    """Return the labels of an object. Its metadata must be valid."""
    return _decode_meta(metadata_text(text)).labels or _no_labels


class _Compact:
    """Writes compact JSON to a buffer that is used again and again, and returns a copy.

    With a new buffer for each object, a large cache would need an eighth more memory: a new buffer is larger than its
    text, and shrinking it fragments the memory.
    """

    _LARGE: Final = 1 << 18

    def __init__(self) -> None:
        self._encode_into = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()

    def __call__(self, value: object) -> bytes:
        self._encode_into(value, self._buffer)
        text = bytes(self._buffer)
        if len(text) > self._LARGE:
            self._buffer.clear()  # give the memory back: most objects are smaller
        return text


_compact: Final = _Compact()


def outline(text: bytes) -> bytes:
    """Return the text of an object with only its metadata. Raises BadObjectError if the metadata is missing."""
    try:
        return b'{"metadata":' + metadata_text(text) + b"}"
    except (*rawjson.UNREADABLE, KeyError) as error:
        raise errors.BadObjectError(str(error), _key_in(text)) from error


def _entry(meta: _Meta, data: bytes, *, too_large_reason: str = "") -> Entry:
    labels = meta.labels
    return Entry(
        namespace=_share(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels={_share(key): _share(value) for key, value in labels.items()} if labels else _no_labels,
        deleting=bool(meta.deletion_timestamp),
        retained=bool(meta.finalizers or meta.deletion_grace_period_seconds),
        data=data,
        too_large_reason=too_large_reason,
    )


def _share(text: str) -> str:
    """Return ``text``, or an equal string that other entries already use.

    From Python 3.12 on, ``sys.intern`` would keep each string for the life of the process.
    """
    shared = _shared.get(text)
    if shared is not None or len(text) > _LONG:
        return shared or text
    if len(_shared) >= MAX_SHARED:
        _shared.clear()  # strings in use are soon shared again
    _shared[text] = text
    return text


def _key_in(raw: msgspec.Raw | bytes | dict[str, msgspec.Raw]) -> NamespacedName | None:
    try:
        if isinstance(raw, dict):
            named = _decode_key(raw["metadata"])
        else:
            named = _decode_name(raw).metadata
    except (*rawjson.UNREADABLE, KeyError):
        return None
    return NamespacedName(named.namespace, named.name)


class _Object(msgspec.Struct):
    """An object without the fields: decoding it only checks that the text is a valid object."""


_check: Final = msgspec.json.Decoder(_Object).decode


async def split_large_page(body: bytes) -> rawjson.Page:
    """Split a list into its parts, as :func:`split_page` does, without blocking the event loop.

    Decoding a page in one call can take 170 ms: 20 items of 1.3 MB, each of which contains 430,000 empty objects.
    Therefore the text of a large page is cut into items, and each item is checked in its own call. A cut is made
    wherever the text looks like the beginning of the first item.
    """
    page = await _cut(body) if len(body) > LARGE else None
    return page or split_page(body)


async def _cut(body: bytes) -> rawjson.Page | None:
    """Return the parts of a list that looks like those of API servers, or None for any other text."""
    begin = body.find(_ITEMS, 0, _HEAD) + len(_ITEMS)
    first = _BEGIN.match(body, begin)
    end = body.rfind(b"}]") + 1
    if begin < len(_ITEMS) or first is None or end <= begin:
        return None
    between = b"}," + first.group()
    items = []
    try:
        page = split_page(body[:begin] + body[end:])
        while begin < end:
            cut = body.find(between, begin, end) + 1
            items.append(msgspec.Raw(body[begin : cut or end]))
            begin = cut + 1 if cut else end
            # If the text was not cut between two items, this is not valid JSON.
            _check(items[-1])
            await anyio.lowlevel.checkpoint()
    except (*rawjson.UNREADABLE, errors.BadObjectError):
        return None
    page.items = items
    return page
