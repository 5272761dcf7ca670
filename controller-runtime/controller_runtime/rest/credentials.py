# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Client credentials: headers for each request, renewed when they expire or are refused."""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from controller_runtime.machinery.errors import one_line

from .errors import ConfigError
from .tls import IssuedPair

TOKEN_FILE_PERIOD: Final = 60.0
"""Seconds after which a token file is read again; the kubelet rewrites a token well before it expires."""
_EXPIRY_MARGIN: Final = timedelta(seconds=10)
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that a header cannot have."""
_QUOTED_ENTRY: Final = re.compile(r"(?<=Expected key )(\S+) in .*\{.*")


def _bearer(token: str) -> dict[str, str]:
    if _UNFIT.search(token):
        raise ConfigError("the token contains a line break or another control character")
    return {"Authorization": f"Bearer {token}"}


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


class _Fixed(Credentials):
    """Headers that never change."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    async def headers(self) -> dict[str, str]:
        return self._headers

    def for_another_loop(self) -> Credentials:
        return self


class Anonymous(_Fixed):
    """No headers: an anonymous client, or one with a client certificate."""

    def __init__(self) -> None:
        super().__init__({})


class StaticToken(_Fixed):
    """A bearer token that never changes."""

    def __init__(self, token: str) -> None:
        super().__init__(_bearer(token))


class Basic(_Fixed):
    """A user name and a password."""

    def __init__(self, username: str, password: str) -> None:
        secret = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
        super().__init__({"Authorization": f"Basic {secret}"})


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
        return _bearer(self._token)

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
            _bearer(token)
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            token = ""
            problem = getattr(error, "strerror", None) or str(error)
        if token:
            self._token = token
            self._read_at = anyio.current_time()
        elif not self._token:
            raise ConfigError(f"token file {self._path}: {problem}")


class Issued(NamedTuple):
    """The result of a login: a token, a client certificate with its key, or both."""

    token: str = ""
    cert: bytes = b""
    key: bytes = b""
    expiry: datetime | None = None
    """When the first of them expires, if the login knows."""


def has_expired(expiry: datetime) -> bool:
    """Return True if ``expiry`` has passed or is a few seconds away."""
    return expiry - _EXPIRY_MARGIN <= datetime.now(UTC)


class PluginCredentials(Credentials):
    """A token, a client certificate or both, which ``login`` obtains from an exec plugin or an OIDC issuer.

    They are renewed when they expire and when the server refuses them. If several requests need new ones at the same
    time, one renewal serves all of them; if it fails, all of them get the error. After a renewal that failed, the
    previous ones stay in use until they expire.
    """

    def __init__(self, label: str, login: Callable[[], Awaitable[Issued]]) -> None:
        self._label = label
        self._login = login
        self._headers: dict[str, str] | None = None
        self.issued: IssuedPair | None = None
        """The client certificate that the login issued; renewed like a token."""
        self._expiry: datetime | None = None
        self._loading = anyio.Lock()
        self._loads = 0
        self._failure: ConfigError | None = None

    async def headers(self) -> dict[str, str]:
        if self._headers is None or (self._expiry is not None and has_expired(self._expiry)):
            await self._load_once()
        return self._headers or {}

    async def refresh(self) -> bool:
        before = self._headers, self.issued and self.issued.cert
        await self._load_once()
        return (self._headers, self.issued and self.issued.cert) != before

    async def _load_once(self) -> None:
        """Load the token. If another task is already loading it, wait for the result or the error of that load."""
        loads = self._loads
        async with self._loading:
            if self._loads == loads:
                await self._load()
            elif self._failure is not None:
                raise ConfigError(str(self._failure)) from self._failure

    async def _load(self) -> None:
        try:
            await self._run()
        except ConfigError as error:
            self._failure = error
            self._loads += 1
            raise
        # A cancelled load is not counted: the next waiting task loads again.
        self._failure = None
        self._loads += 1

    async def _run(self) -> None:
        try:
            found = await self._login()
        except Exception as error:
            # A plugin may issue anything, and its configuration may contain anything.
            raise ConfigError(f"{self._label}: {redacted(error)}") from error
        try:
            headers = _bearer(found.token) if found.token else {}
        except ConfigError as error:
            raise ConfigError(f"{self._label}: {error}") from error
        if found.cert and self.issued is not None:
            self.issued.renew(found.cert, found.key)
        elif found.cert:
            self.issued = IssuedPair(found.cert, found.key)
        self._expiry = found.expiry
        self._headers = headers


def redacted(error: BaseException) -> str:
    """Return an error's text on one line, without any kubeconfig entry that the error quotes."""
    return _QUOTED_ENTRY.sub(r"\1", one_line(error))
