# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Origin: the address in a URL, taken apart once."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from .message import Error


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server or a proxy is."""

    secure: bool
    host: str
    """The name or address as it is looked up and as a certificate is checked for it, in ASCII."""
    port: int
    authority: str
    """Host and port as a ``Host`` header names them: no port where it is the scheme's own."""
    path: str = ""
    """What stands before every request's path."""
    authorization: str = ""
    """The credentials in the URL, as a header shows them."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Take ``url`` apart.

        Raises:
            Error: it is none, or neither of http nor of https. Its text shows no password.
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
        """Scheme and authority, no credentials."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"


def _basic(user: str, password: str) -> str:
    if not user and not password:
        return ""
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode("ascii")


def shown(url: str) -> str:
    """Return ``url``, which need not be a valid one, without the user name and password in it."""
    scheme, found, rest = url.partition("://")
    if "@" not in rest:
        return url if found else url.rpartition("@")[2]
    return f"{scheme}://{rest.rpartition('@')[2]}"
