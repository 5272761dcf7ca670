# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Serving the webhooks once there is a certificate to serve them with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from pkg import ctrl, webhooks
from pkg.ctrl import healthz, log
from pkg.runtime import Runtime

_PERIOD: Final = 1.0


class AwaitedWebhooks:
    """A runnable that registers the webhooks when the certificate's files are there; until then it is not ready.

    Controllers do not wait for it: only admission needs a certificate.
    """

    name = "webhook certificates"

    def __init__(self, mgr: ctrl.Manager, runtimes: Mapping[str, Runtime], cert_dir: str) -> None:
        self._mgr = mgr
        self._runtimes = runtimes
        self._files = (Path(cert_dir) / "tls.crt", Path(cert_dir) / "tls.key")
        self._registered = False

    def need_leader_election(self) -> bool:
        """No: every manager answers webhooks."""
        return False

    async def start(self) -> None:
        """Wait for the files, then register."""
        if not self._there():
            log.logger_from("setup").info("Waiting for the webhooks' certificate", file=str(self._files[0]))
        while not self._there():  # noqa: ASYNC110 - a mounted Secret wakes nobody
            await anyio.sleep(_PERIOD)
        webhooks.setup(self._mgr, self._runtimes)
        self._registered = True

    def check(self) -> None:
        """Fail until webhooks are answered."""
        if not self._registered:
            raise healthz.NotHealthyError("certificates are not ready")
        self._mgr.webhook_server.started_checker()()

    def _there(self) -> bool:
        return all(file.exists() for file in self._files)
