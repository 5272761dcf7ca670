# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Heads of requests and responses, and the errors of this package.

Error           no response, or only a part of it, was received; the text is one line
└── GoneError   the connection was closed before the first byte of the response
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_JOINED: Final = frozenset((b"warning", b"transfer-encoding", b"connection", b"content-encoding"))
"""If one of these headers has several lines, they are joined. For any other header, only the first line is used."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNFIT: Final = re.compile(r"[\x00\r\n]")
_UNFIT_TARGET: Final = re.compile(r"[\x00-\x20\x7f]")
_BODY_EXPECTED: Final = frozenset(("POST", "PUT", "PATCH"))
_MOST_RENDERED: Final = 256


class Error(Exception):
    """No response, or only a part of it, was received."""


class GoneError(Error):
    """The connection was closed before the first byte of the response; the request may have taken effect."""


class Headers(Mapping[str, str]):
    """The headers of a response. Names are case-insensitive; bytes that are not UTF-8 become surrogates."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[bytes, tuple[bytes, bytes]] = {}
        """For each name in lower case, the name as it was sent, and the value."""

    def add(self, name: bytes, value: bytes) -> None:
        """Add a line."""
        key = name.lower()
        if key not in self.lines:
            self.lines[key] = (name, value)
        elif key in _JOINED:
            self.lines[key] = (name, self.lines[key][1] + b", " + value)

    def clear(self) -> None:
        """Remove all lines. This is called after the head of an interim response."""
        self.lines.clear()

    def raw(self, key: bytes) -> bytes:
        """Return the value of the header ``key``, which is in lower case, or empty bytes."""
        line = self.lines.get(key)
        return line[1].strip() if line is not None else b""

    def __getitem__(self, name: str) -> str:
        try:
            return _text(self.lines[name.lower().encode()][1])
        except KeyError:
            raise KeyError(name) from None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode() in self.lines

    def __iter__(self) -> Iterator[str]:
        return (_text(name) for name, _ in self.lines.values())

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("utf-8", "surrogateescape")


class Heads:
    """Renders the heads of requests to one server; shared headers are rendered once.

    A header of the request replaces the shared header of the same name.
    """

    def __init__(self, prefix: str, shared: Iterable[tuple[str, str]]) -> None:
        self._prefix = prefix
        self._shared = [(name.lower(), _line(name, value)) for name, value in shared]
        self._shared_names = {name for name, _ in self._shared}
        self._constant = b"".join(line for _, line in self._shared)
        self._rendered: dict[tuple[str, str], tuple[bytes, bool]] = {}

    def render(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return a head that ends in an empty line.

        Raises:
            Error: the method, the target or a header contains characters that are not allowed.
        """
        target = self._prefix + target
        if _UNFIT_TARGET.search(target) or not _NAME.fullmatch(method):
            raise Error(f"{method} {target!r} is not a request line")
        lines = [f"{method} {target or '/'} HTTP/1.1\r\n".encode(), self._constant]
        replaced = False
        for pair in headers.items():
            known = self._rendered.get(pair)
            if known is None:
                known = self._remember(pair)
            lines.append(known[0])
            replaced |= known[1]
        if replaced:
            names = {name.lower() for name in headers}
            lines[1] = b"".join(line for name, line in self._shared if name not in names)
        if body is not None or method in _BODY_EXPECTED:
            lines.append(b"Content-Length: %d\r\n" % len(body or b""))
        lines.append(b"\r\n")
        return b"".join(lines)

    def _remember(self, pair: tuple[str, str]) -> tuple[bytes, bool]:
        if len(self._rendered) >= _MOST_RENDERED:
            self._rendered.clear()
        known = self._rendered[pair] = (_line(*pair), pair[0].lower() in self._shared_names)
        return known


def _line(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name) or _UNFIT.search(value):
        raise Error(f"the header {name!r} cannot be sent: its name or value contains invalid characters")
    return f"{name}: {value}\r\n".encode("utf-8", "surrogateescape")
