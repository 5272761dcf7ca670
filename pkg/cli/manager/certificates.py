# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Serving the webhooks once there is a certificate to serve them with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from pkg.ctrl import healthz, log

_PERIOD: Final = 1.0


class AwaitedWebhooks:
    """A runnable that calls ``register`` when the certificate's files are there; until then it is not ready.

    Controllers do not wait for it: only admission needs a certificate. ``started`` is the check that counts
    from then on.
    """

    name = "webhook certificates"

    def __init__(self, cert_dir: str, register: Callable[[], None], started: Callable[[], object]) -> None:
        self._files = (Path(cert_dir) / "tls.crt", Path(cert_dir) / "tls.key")
        self._register = register
        self._started = started
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
        self._register()
        self._registered = True

    def check(self) -> None:
        """Fail until webhooks are answered."""
        if not self._registered:
            raise healthz.NotHealthyError("certificates are not ready")
        self._started()

    def _there(self) -> bool:
        return all(file.exists() for file in self._files)
