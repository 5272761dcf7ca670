# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Credentials that a login gives: an exec plugin, an OIDC issuer, gcloud; run by kubernetes-asyncio."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio

from controller_runtime.apis.machinery.errors import one_line

from .credentials import Credentials
from .errors import ConfigError
from .tls import IssuedPair

_EXPIRY_MARGIN: Final = timedelta(seconds=10)
_QUOTED_ENTRY: Final = re.compile(r"(?<=Expected key )(\S+) in .*\{.*")
_PAST: Final = datetime.fromtimestamp(0, UTC)


class PluginCredentials(Credentials):
    """A token that the library gets from an exec plugin, an OIDC issuer or gcloud.

    It is asked for again when it runs out, and when the server refuses it; once for all requests that find that out
    at the same time, which share a failure, too.
    """

    def __init__(self, label: str, loader: Any, command: Any = None) -> None:
        self._label = label
        self._loader = loader
        self._command = command
        self._headers: dict[str, str] | None = None
        self.issued: IssuedPair | None = None
        """The client certificate it issued instead of a token; renewed as one is."""
        self._runs_out: datetime | None = None
        self._loading = anyio.Lock()
        self._loads = 0
        self._failure: ConfigError | None = None

    async def headers(self) -> dict[str, str]:
        expiry: datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        if self.issued is not None:
            expiry = self._runs_out
        expired = expiry is not None and expiry - _EXPIRY_MARGIN <= datetime.now(UTC)
        if self._headers is None or expired or self._loader.provider is not None:
            await self._load_once()
        return self._headers or {}

    async def refresh(self) -> bool:
        before = self._headers, self.issued and self.issued.cert
        await self._load_once()
        return (self._headers, self.issued and self.issued.cert) != before

    async def _load_once(self) -> None:
        """Load, or take the outcome of a load that ends while we wait for our turn."""
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
        # Not counted is one that was cancelled: the next in turn runs it again.
        self._failure = None
        self._loads += 1

    async def _run(self) -> None:
        try:
            with _without_its_log(), _without_its_memory(self._loader):
                # The public load_and_set would write inline certificates to files that outlive us.
                await self._loader._load_authentication()
        except OSError as error:
            raise ConfigError(
                f"{self._label}: {self._program()}{error.strerror or redacted(error)}"
            ) from error
        except Exception as error:
            # The library lets whatever its plugins and its own JSON reading raise come through.
            raise ConfigError(f"{self._label}: {redacted(error)}") from error
        token = getattr(self._loader, "token", "")
        pair = _issued_certificate(self._loader) if self._command is not None and not token else None
        if pair is not None:
            self._take(*pair)
        elif self._command is not None and not token:
            raise ConfigError(f"{self._label}: {self._program()}it gave neither a token nor a certificate")
        self._headers = {"Authorization": token} if token else {}

    def _take(self, cert: bytes, key: bytes) -> None:
        if self.issued is None:
            self.issued = IssuedPair(cert, key)
        else:
            self.issued.renew(cert, key)
        try:
            self._runs_out = self.issued.expiry()
        except ValueError as error:
            raise ConfigError(f"{self._label}: {self._program()}its certificate is none: {error}") from error

    def _program(self) -> str:
        command = self._command.get("command") if isinstance(self._command, Mapping) else None
        return f"exec {command}: " if command else ""


def _issued_certificate(loader: Any) -> tuple[bytes, bytes] | None:
    """Return the client certificate and key that an exec plugin issued, or None."""
    cert, key = getattr(loader, "cert_file", None), getattr(loader, "key_file", None)
    return (Path(cert).read_bytes(), Path(key).read_bytes()) if cert and key else None


@contextlib.contextmanager
def _without_its_memory(loader: Any) -> Iterator[None]:
    """Have the library run a plugin now, and forget what the run before gave: this one may not give it."""
    loader.exec_plugin_expiry, loader.token = _PAST, ""
    try:
        yield
    finally:
        if loader.exec_plugin_expiry is _PAST:
            del loader.exec_plugin_expiry


@contextlib.contextmanager
def _without_its_log() -> Iterator[None]:
    """Keep the library from logging what it raises as well: it is told once, by us."""

    def nothing(_record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger("kubernetes_asyncio.config.kube_config")
    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


def redacted(error: BaseException) -> str:
    """Return an error's text on one line, without the entry of a kubeconfig that it quotes.

    kubernetes-asyncio quotes the whole entry in which a key is missing, tokens included.
    """
    return _QUOTED_ENTRY.sub(r"\1", one_line(error))
