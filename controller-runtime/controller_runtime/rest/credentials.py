# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Client credentials: headers for each request, renewed when they expire or are refused.

Logins (an exec plugin, an OIDC issuer, gcloud) are run by kubernetes-asyncio.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from controller_runtime.machinery import JSON
from controller_runtime.machinery.errors import one_line

from .errors import ConfigError
from .tls import IssuedPair

if TYPE_CHECKING:
    from .kubeconfig_import import Loader

TOKEN_FILE_PERIOD: Final = 60.0
"""Seconds after which a token file is read again; the kubelet rewrites a token well before it expires."""
_EXPIRY_MARGIN: Final = timedelta(seconds=10)
_QUOTED_ENTRY: Final = re.compile(r"(?<=Expected key )(\S+) in .*\{.*")
_PAST: Final = datetime.fromtimestamp(0, UTC)


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
        super().__init__({"Authorization": f"Bearer {token}"})


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


class PluginCredentials(Credentials):
    """A token that kubernetes-asyncio obtains from an exec plugin, an OIDC issuer or gcloud.

    The token is renewed when it expires and when the server refuses it. Concurrent requests share one renewal, and its
    error if it fails.
    """

    def __init__(self, label: str, loader: Loader, command: JSON = None) -> None:
        self._label = label
        self._loader = loader
        self._command = command
        self._headers: dict[str, str] | None = None
        self.issued: IssuedPair | None = None
        """The client certificate that the plugin issued instead of a token; renewed like a token."""
        self._expiry: datetime | None = None
        self._loading = anyio.Lock()
        self._loads = 0
        self._failure: ConfigError | None = None

    async def headers(self) -> dict[str, str]:
        expiry: datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        if self.issued is not None:
            expiry = self._expiry
        expired = expiry is not None and expiry - _EXPIRY_MARGIN <= datetime.now(UTC)
        if self._headers is None or expired or self._loader.provider is not None:
            await self._load_once()
        return self._headers or {}

    async def refresh(self) -> bool:
        before = self._headers, self.issued and self.issued.cert
        await self._load_once()
        return (self._headers, self.issued and self.issued.cert) != before

    async def _load_once(self) -> None:
        """Load the token, or use the outcome of a load that another task finished while this one waited."""
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
            self._failure, self._headers = error, None
            self._loads += 1
            raise
        # A cancelled load is not counted: the next waiting task loads again.
        self._failure = None
        self._loads += 1

    async def _run(self) -> None:
        try:
            with _without_its_log(), _without_its_memory(self._loader):
                # The public load_and_set would write inline certificates to files that outlive the process.
                await self._loader._load_authentication()
        except OSError as error:
            raise ConfigError(
                f"{self._label}: {self._program()}{error.strerror or redacted(error)}"
            ) from error
        except Exception as error:
            # The library passes on any exception of its plugins and its JSON parsing.
            raise ConfigError(f"{self._label}: {redacted(error)}") from error
        token = getattr(self._loader, "token", "")
        pair = _issued_certificate(self._loader) if self._command is not None and not token else None
        if pair is not None:
            self._take(*pair)
        elif self._command is not None and not token:
            raise ConfigError(
                f"{self._label}: {self._program()}it returned neither a token nor a certificate"
            )
        self._headers = {"Authorization": token} if token else {}

    def _take(self, cert: bytes, key: bytes) -> None:
        if self.issued is None:
            self.issued = IssuedPair(cert, key)
        else:
            self.issued.renew(cert, key)
        try:
            self._expiry = self.issued.expiry()
        except ValueError as error:
            raise ConfigError(
                f"{self._label}: {self._program()}its certificate is invalid: {error}"
            ) from error

    def _program(self) -> str:
        command = self._command.get("command") if isinstance(self._command, Mapping) else None
        return f"exec {command}: " if command else ""


def _issued_certificate(loader: Loader) -> tuple[bytes, bytes] | None:
    """Return the client certificate and key that an exec plugin issued, or None."""
    cert, key = getattr(loader, "cert_file", None), getattr(loader, "key_file", None)
    return (Path(cert).read_bytes(), Path(key).read_bytes()) if cert and key else None


@contextlib.contextmanager
def _without_its_memory(loader: Loader) -> Iterator[None]:
    """Make the library run a plugin now and discard the previous result, which the library would otherwise reuse."""
    loader.exec_plugin_expiry, loader.token = _PAST, ""
    try:
        yield
    finally:
        if loader.exec_plugin_expiry is _PAST:
            del loader.exec_plugin_expiry


@contextlib.contextmanager
def _without_its_log() -> Iterator[None]:
    """Suppress the library's log of errors that it also raises: the caller reports them once."""

    def nothing(_record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger("kubernetes_asyncio.config.kube_config")
    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


def redacted(error: BaseException) -> str:
    """Return an error's text on one line, without any kubeconfig entry that the error quotes.

    kubernetes-asyncio quotes the whole entry in which a key is missing, tokens included.
    """
    return _QUOTED_ENTRY.sub(r"\1", one_line(error))
