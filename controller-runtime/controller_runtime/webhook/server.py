# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The webhook server: serves handlers over TLS. Its certificates may be replaced while the server runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import anyio

from controller_runtime import healthz, log, serving

from . import admission, conversion, review
from .certwatcher import PERIOD, CertWatcher

DEFAULT_PORT: Final = 9443

_log = log.logger_from("controller-runtime.webhook")


def default_cert_dir() -> Path:
    """Return the default directory of certificates."""
    # Like Go's os.TempDir. Nothing is written there, so the directory need not be writable.
    return Path(os.environ.get("TMPDIR") or "/tmp") / "k8s-webhook-server" / "serving-certs"  # noqa: S108


class Server(serving.Server):
    """A runnable that serves webhooks, also on managers that do not lead.

    It checks every ``cert_period`` seconds whether the certificate files have changed.
    """

    def __init__(
        self,
        host: str = "",
        port: int = DEFAULT_PORT,
        cert_dir: str | Path = "",
        *,
        cert_period: float = PERIOD,
        tls_options: serving.TLSOptions | None = None,
    ) -> None:
        cert_dir = Path(cert_dir) if cert_dir else default_cert_dir()
        self._watcher: CertWatcher | None = CertWatcher(
            cert_dir / "tls.crt", cert_dir / "tls.key", period=cert_period
        )
        self._handlers: dict[str, serving.Handler] = {}
        self._serving = False
        self._conversions: conversion.Conversions | None = None
        super().__init__(
            serving.Address(host, port),
            self._handlers,
            tls=self._watcher,
            tls_options=tls_options,
            max_body=review.MAX_BODY,
            inspection=review.BodyInspection(),
            name="webhook server",
        )

    @property
    def conversions(self) -> conversion.Conversions:
        """The conversions that are served at :data:`.conversion.CONVERSION_PATH`, once this property has been read."""
        if self._conversions is None:
            self._conversions = conversion.Conversions()
            self.register_http(conversion.CONVERSION_PATH, conversion.ConversionWebhook(self._conversions))
        return self._conversions

    def use(self, certificates: serving.TLSProvider) -> None:
        """Serve with ``certificates``, which the caller renews, instead of the certificates in a directory.

        Call this method before the start.
        """
        self._watcher, self._tls = None, certificates

    @property
    def paths(self) -> list[str]:
        """The paths that are served."""
        return list(self._handlers)

    def register(self, path: str, handler: admission.Handler) -> None:
        """Serve ``handler`` at ``path``.

        Raises:
            ValueError: the path is taken.
        """
        self.register_http(path, review.Webhook(path, handler))

    def register_http(self, path: str, handler: serving.Handler) -> None:
        """Serve any HTTP handler at ``path``. Raises like :meth:`register`."""
        if path in self._handlers:
            raise ValueError(f"can't register duplicate path: {path}")
        self._handlers[path] = handler
        _log.debug("Registering webhook", path=path)

    def started_checker(self) -> healthz.Checker:
        """Return a health check that passes only while the server serves."""

        def check() -> None:
            if not self._serving:
                raise healthz.NotHealthyError("webhook server has not been started yet")

        return check

    def need_leader_election(self) -> bool:
        """Return False: every replica answers requests."""
        return False

    async def start(self) -> None:
        """Serve until cancelled.

        Raises:
            CertificateError: there are no certificates.
            ServerError: the address cannot be bound.
        """
        self._context()  # report missing certificates before an address in use
        self.listen()
        _log.info("Serving webhook server", port=self.port)
        self._serving = True
        try:
            async with anyio.create_task_group() as tasks:
                if self._watcher is not None:
                    tasks.start_soon(self._watcher.start)
                await super().start()
        finally:
            self._serving = False
