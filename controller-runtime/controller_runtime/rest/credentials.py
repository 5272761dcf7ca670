# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Client credentials: headers for each request, renewed when they expire or are refused."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import anyio

from .errors import ConfigError

TOKEN_FILE_PERIOD: Final = 60.0
"""Seconds after which a token file is read again; the kubelet rewrites a token well before it expires."""


class Credentials(ABC):
    """Supplies the headers that authenticate the client."""

    @abstractmethod
    async def headers(self) -> dict[str, str]:
        """Return the headers for a request sent now.

        Raises:
            ConfigError: no credentials can be obtained.
        """

    async def refresh(self) -> bool:
        """Renew credentials that the server refused; return True if a retry may succeed."""
        return False

    def for_another_loop(self) -> Credentials | None:
        """Return credentials of the same identity for an event loop in another thread, or None if impossible."""
        return None


class Anonymous(Credentials):
    """No headers: an anonymous client, or one with a client certificate."""

    async def headers(self) -> dict[str, str]:
        return {}

    def for_another_loop(self) -> Credentials:
        return self


class StaticToken(Credentials):
    """A bearer token that never changes."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}

    async def headers(self) -> dict[str, str]:
        return self._headers

    def for_another_loop(self) -> Credentials:
        return self


class Basic(Credentials):
    """A user name and a password."""

    def __init__(self, username: str, password: str) -> None:
        secret = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
        self._headers = {"Authorization": f"Basic {secret}"}

    async def headers(self) -> dict[str, str]:
        return self._headers

    def for_another_loop(self) -> Credentials:
        return self


class TokenFile(Credentials):
    """A bearer token in a file that another process rewrites, such as a pod's service account token.

    The file is read again after :data:`TOKEN_FILE_PERIOD` and when the server refuses the token. While the file
    cannot be read, the last token is used.
    """

    def __init__(self, path: str | Path, *, period: float = TOKEN_FILE_PERIOD) -> None:
        self._path = Path(path)
        self._period = period
        self._token = ""
        self._read_at = float("-inf")

    async def headers(self) -> dict[str, str]:
        if anyio.current_time() - self._read_at >= self._period:
            self._read()
        return {"Authorization": f"Bearer {self._token}"}

    def for_another_loop(self) -> Credentials:
        made = TokenFile(self._path, period=self._period)
        made._token = self._token
        return made

    async def refresh(self) -> bool:
        before = self._token
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
            problem = "" if token else "is empty"
        except (OSError, UnicodeDecodeError) as error:
            token = ""
            problem = getattr(error, "strerror", None) or str(error)
        if token:
            self._token = token
            self._read_at = anyio.current_time()
        elif not self._token:
            raise ConfigError(f"token file {self._path}: {problem}")
