# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Origin: the parsed address of a URL."""

from __future__ import annotations

import base64
from typing import Self
from urllib.parse import unquote, urlsplit

import msgspec

from .message import Error


class Origin(msgspec.Struct, frozen=True):
    """The address of a server or a proxy."""

    secure: bool
    host: str
    """The name or address, in ASCII, for look-ups and for the verification of certificates."""
    port: int
    authority: str
    """Host and port as in a ``Host`` header, without the default port of the scheme."""
    path: str = ""
    """The prefix of every request's path."""
    authorization: str = ""
    """The credentials in the URL, as a header value."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse ``url``.

        Raises:
            Error: the URL is not valid, or its scheme is not http or https. The text contains no password.
        """
        try:
            parts = urlsplit(url)
            secure = {"http": False, "https": True}[parts.scheme]
            host = (parts.hostname or "").rstrip(".")
            host = host if host.isascii() else host.encode("idna").decode("ascii")
            port = parts.port
        except (KeyError, ValueError) as error:
            raise Error(f"{shown(url) or 'an empty text'} is not the address of an HTTP server") from error
        if not host:
            raise Error(f"{shown(url) or 'an empty text'} is not the address of an HTTP server")
        named = f"[{host}]" if ":" in host else host
        own = 443 if secure else 80
        return cls(
            secure=secure,
            host=host,
            port=own if port is None else port,
            authority=named if port in (None, own) else f"{named}:{port}",
            path=parts.path.rstrip("/"),
            authorization=_basic(parts.username or "", parts.password or ""),
        )

    @property
    def url(self) -> str:
        """Scheme and authority, without credentials."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"


def _basic(user: str, password: str) -> str:
    if not user and not password:
        return ""
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")


def shown(url: str) -> str:
    """Return ``url``, which need not be valid, without its user name and password."""
    scheme, found, rest = url.partition("://")
    if "@" not in rest:
        return url if found else url.rpartition("@")[2]
    return f"{scheme}://{rest.rpartition('@')[2]}"
