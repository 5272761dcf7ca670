# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Cut JSON of any depth into the texts of its members.

The decoder raises RecursionError at a depth of about 1,000, also for values that it only skips. API servers accept
ten times as much, so one object could make the list of its kind undecodable. These functions take a microsecond for
each bracket, string and comma: call them after a RecursionError only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

_STRING: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:', re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{},]', re.DOTALL)


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of an object, undecoded; the values are not validated.

    Raises:
        DecodeError: the text is not an object.
    """
    found: dict[str, msgspec.Raw] = {}
    for member in _members(bytes(text), b"{"):
        key = _STRING.match(member)
        if key is None:
            raise msgspec.DecodeError("an object has a field without a name")
        found[msgspec.json.decode(key[1], type=str)] = msgspec.Raw(member[key.end() :].strip())
    return found


def items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a list, undecoded; they are not validated.

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
    raise msgspec.DecodeError("a text has no end")
