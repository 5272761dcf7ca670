# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Check JSON texts against limits before they are decoded, and cut them into the texts of their fields and items.

A decoded object takes up to a thousand times the memory of its text: 1.3 MB of ``{},{},…`` match the schema of many
kinds and block the event loop for seconds. Counting bytes takes a small fraction of this time, regardless of the shape.

The decoder raises RecursionError at a depth of about 1,000, also for values that it only skips. API servers accept
ten times that depth, so one object could make the list of its kind undecodable. :func:`fields` and :func:`items` cut a
text of any depth. They take a microsecond for each bracket, string and comma: call them only after a RecursionError.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

import msgspec

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
SMALL: Final = 16 << 10
"""Texts up to this size in bytes are not checked: they decode within milliseconds in any shape."""
PIECE: Final = 16 << 10
"""Number of bytes that are counted without interruption; this takes at most a quarter of a millisecond."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for a text that is not the expected JSON, is not UTF-8, or is nested too deeply."""

parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Returns the fields of a JSON object as undecoded texts.

Raises one of :data:`UNREADABLE` if the text is not an object.
"""


class Limits(msgspec.Struct, frozen=True):
    """The limits on a text's content."""

    size: int = 3 << 20
    """Bytes of the text; the API server rejects larger requests."""
    containers: int = 12_000
    """Number of objects and lists, including empty ones."""
    items: int = 24_000
    """Number of commas: the first item of a list and the first field of an object are not counted."""
    depth: int = 100
    """Nesting depth of objects and lists."""
    string: int = 3 << 19
    """Bytes of one string, by default etcd's limit for an object; must be at least :data:`PIECE`."""
    number: int = 1024
    """Digits of one number."""


DEFAULT: Final = Limits()
"""For objects written by users: decoding takes up to 50 ms and 20 MiB.

An object with 100 complete pod templates reaches about half of these limits.
"""
WIDE: Final = Limits(containers=40_000, items=80_000)
"""For objects generated from users' objects, and for single reads: decoding takes up to 200 ms and 60 MiB."""
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_BRACKETS: Final = bytes.maketrans(b"[]", b"{}")
_OTHERS: Final = bytes(set(range(256)) - set(b'[]{},"'))
_STEPS: Final = bytes.maketrans(b"{}", b"\x01\xff")
_SAMPLES: Final = 8
"""To find numbers that are too long, only this many bytes are examined in each half of the maximum length."""


def check(data: bytes, limits: Limits = DEFAULT) -> str | None:
    """Return a one-line reason why a JSON text exceeds ``limits``, or None if it does not.

    Of texts up to :data:`SMALL` bytes, only the size is checked. Never raises: invalid JSON is reported when it is
    decoded.
    """
    size = len(data)
    if size > limits.size:
        return f"{size} bytes, at most {limits.size} are accepted"
    return None if size <= SMALL else Counter(limits).feed(data)


class Counter:
    """Counts the elements of a JSON text while it arrives; brackets and commas in strings are not counted.

    The time is linear in the size: 1 to 10 ms per megabyte, depending on the shape. Other threads can run after each
    :data:`PIECE`. After the first syntax error of an invalid text the counts may be wrong.
    """

    __slots__ = ("_backslash", "_containers", "_depth", "_digits", "_items", "_limits", "_string")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._containers = self._items = self._depth = 0
        self._string = -1  # bytes of the string that is unfinished at the end; negative if there is none
        self._backslash = b""  # a backslash if the bytes counted so far end within an escape sequence
        self._digits = 0  # digits of the number at the end

    def feed(self, data: bytes) -> str | None:
        """Count the next bytes; return the reason if the text now exceeds the limits, or None."""
        for at in range(0, len(data), PIECE):
            if (reason := self._count(data[at : at + PIECE])) is not None:
                return reason
        return None

    def _count(self, piece: bytes) -> str | None:
        if self._backslash or b"\\" in piece:
            piece = (self._backslash + piece).replace(b"\\\\", b"--").replace(b'\\"', b"--")
            self._backslash = b"\\" if piece.endswith(b"\\") else b""
            piece = piece.removesuffix(b"\\")
        inside = self._string >= 0
        # A string without brackets and commas is reduced to two quotes, which can be removed without moving the others.
        text = piece.translate(None, _OTHERS).replace(b'""', b"")
        if quotes := text.count(b'"'):
            text = b"".join(text.split(b'"')[inside::2])
        elif inside:
            text = b""
        ends_inside = bool(inside ^ quotes & 1)
        if self._longest_string(piece, ends_inside=ends_inside) > self._limits.string:
            return f"a string of more than {self._limits.string} bytes"
        if self._has_long_number(piece, inside=inside, ends_inside=ends_inside):
            return f"a number of more than {self._limits.number} digits"
        return self._count_structure(text)

    def _longest_string(self, piece: bytes, *, ends_inside: bool) -> int:
        """Return the size so far of a string that began before ``piece``, or -1 if there is none.

        A string that begins in ``piece`` is too short to exceed the limit.
        """
        size = -1
        if self._string >= 0:
            end = piece.find(b'"')
            size = self._string + (end if end >= 0 else len(piece))
        if ends_inside:
            begin = piece.rfind(b'"')
            self._string = len(piece) - begin - 1 if begin >= 0 else size
        else:
            self._string = -1
        return size

    def _has_long_number(self, piece: bytes, *, inside: bool, ends_inside: bool) -> bool:
        most, before = self._limits.number, self._digits
        tail = 0 if ends_inside else len(piece) - len(piece.rstrip(b"0123456789"))
        self._digits = tail + before if tail == len(piece) else tail
        # At least one half of a number that is too long is in one piece.
        step = max(1, most // 2 // _SAMPLES)
        samples = piece[::step].translate(_DIGITS)
        if before <= most // 2 and b"0" * max(1, most // 2 // step) not in samples:
            return False
        outside = b'"'.join(piece.split(b'"')[inside::2])
        return b"0" * (most + 1) in b"0" * before + outside.translate(_DIGITS)

    def _count_structure(self, text: bytes) -> str | None:
        """Count a text from which the strings were removed."""
        limits = self._limits
        brackets = text.translate(_BRACKETS, b",")
        opened = brackets.count(b"{")
        self._containers += opened
        self._items += len(text) - len(brackets)
        if self._containers > limits.containers:
            return f"more than {limits.containers} objects and lists"
        if self._items > limits.items:
            return f"more than {limits.items} items"
        depth, self._depth = self._depth, max(0, self._depth + 2 * opened - len(brackets))
        if depth + opened > limits.depth:
            steps = memoryview(brackets.translate(_STEPS)).cast("b")
            if max(itertools.accumulate(steps, initial=depth)) > limits.depth:
                return f"more than {limits.depth} objects and lists inside each other"
        return None


def metadata_text(text: bytes) -> bytes:
    """Return the text of an object's metadata. Raises like :func:`parts`, and KeyError if there is no metadata."""
    return bytes(parts(text)["metadata"])


def without_managed_fields(obj: bytes) -> bytes:
    """Return an object's text without managedFields; a text that has no managedFields, or is not an object, is returned
    unchanged.
    """
    try:
        whole = parts(obj)
        metadata = parts(whole["metadata"])
        del metadata["managedFields"]
        return msgspec.json.encode({**whole, "metadata": metadata})
    except (*UNREADABLE, KeyError):
        return obj


class WatchLine(msgspec.Struct):
    """A line of a watch. The fields of its object are not decoded yet."""

    type: str
    object: dict[str, msgspec.Raw]


class Bookmark(msgspec.Struct, rename="camel"):
    """The metadata that a bookmark has, and of which every object of a watch has the version."""

    resource_version: str = ""
    annotations: dict[str, str] | None = None

    @property
    def ends_initial_events(self) -> bool:
        """Return True if every existing object has been streamed."""
        return (self.annotations or {}).get(INITIAL_EVENTS_END) == "true"


class Marked(msgspec.Struct):
    """An object of which only the metadata of a bookmark is read."""

    metadata: Bookmark = msgspec.field(default_factory=Bookmark)


decode_line: Final = msgspec.json.Decoder(WatchLine).decode
_decode_bookmark: Final = msgspec.json.Decoder(Bookmark).decode
_decode_marked: Final = msgspec.json.Decoder(Marked).decode


def bookmark_of(obj: msgspec.Raw | dict[str, msgspec.Raw]) -> Bookmark:
    """Return the version and the annotations of an object, given as its undecoded fields or as its text.

    Raises one of :data:`UNREADABLE` if they have other types.
    """
    if not isinstance(obj, dict):
        return _decode_marked(obj).metadata
    metadata = obj.get("metadata")
    return Bookmark() if metadata is None else _decode_bookmark(metadata)


class PageMeta(msgspec.Struct, rename="camel"):
    """A list's own metadata."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Page(msgspec.Struct):
    """A list, or one page of it, whose items are not decoded yet."""

    items: list[msgspec.Raw] | None
    """Required: JSON without items was not sent by an API server, and must not empty a cache."""
    metadata: PageMeta = msgspec.field(default_factory=PageMeta)


_decode_page: Final = msgspec.json.Decoder(Page).decode
_decode_page_meta: Final = msgspec.json.Decoder(PageMeta).decode


def split_page(body: bytes) -> Page:
    """Split a list of any depth into its parts.

    Raises:
        DecodeError, KeyError, RecursionError: the text is not a list of an API server.
    """
    try:
        return _decode_page(body)
    except RecursionError:
        parts = fields(body)
        return Page(items(parts["items"]), _decode_page_meta(parts["metadata"]))


_STRING: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:', re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{},]', re.DOTALL)


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of an object, undecoded; the values are not validated.

    Raises:
        DecodeError: the text is not an object.
    """
    members: dict[str, msgspec.Raw] = {}
    for member in _members(bytes(text), b"{"):
        key = _STRING.match(member)
        if key is None:
            raise msgspec.DecodeError("an object has a field without a name")
        members[msgspec.json.decode(key[1], type=str)] = msgspec.Raw(member[key.end() :].strip())
    return members


def items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a list, undecoded; the items are not validated.

    Raises:
        DecodeError: the text is not a list.
    """
    return [msgspec.Raw(item) for item in _members(bytes(text), b"[")]


def _members(text: bytes, opening: bytes) -> Iterator[bytes]:
    depth = start = 0
    if not text.lstrip().startswith(opening):
        raise msgspec.DecodeError(f"a text does not begin with {opening.decode()}")
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == 1:
                    start = token.end()
            case b"}" | b"]":
                depth -= 1
                if depth == 0:
                    if last := text[start : token.start()].strip():
                        yield last
                    return
            case b"," if depth == 1:
                yield text[start : token.start()].strip()
                start = token.end()
    raise msgspec.DecodeError("a list or object is not closed")
