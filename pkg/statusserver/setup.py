# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The status server as a runnable of the manager: its port, its certificates, and a client of its own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import anyio
import controller_runtime as ctrl
from controller_runtime import client, healthz, log, rest, serving
from controller_runtime.webhook import CertWatcher

from pkg.apis.config.v1alpha1 import StatusServer as StatusServerConfiguration

from .auth import ProjectedServiceAccountTokenAuthorizer
from .issuer import Issuer
from .pods import PodOwners
from .server import MAX_BODY, StatusHandler

if TYPE_CHECKING:
    from pkg.util.cert import Certificates

_QPS: Final = 5.0
_BURST: Final = 10
"""The limits that apply if the Configuration sets zero, as in client-go."""

_log = log.logger_from("status-server")


class StatusServer:
    """Serves status updates in every replica. Its writes and its reads have rate limits of their own.

    The server waits until the manager's ``certificates`` include one that can be served. If ``certificates`` is a
    CertWatcher, the server uses the certificate in the watcher's files.
    """

    name = "status server"

    def __init__(
        self,
        mgr: ctrl.Manager,
        cfg: StatusServerConfiguration,
        certificates: Certificates | CertWatcher,
        tls_options: serving.TLSOptions,
    ) -> None:
        self._mapper = mgr.rest_mapper
        self._connection = dataclasses.replace(mgr.config, qps=cfg.qps or _QPS, burst=cfg.burst or _BURST)
        self._reads, self._cached = mgr.config, mgr.client
        self._certificates = certificates
        self._handler: StatusHandler | None = None
        self._has_served = False
        self._server = serving.Server(
            serving.Address(mgr.options.webhook_host, cfg.port or 0),
            {"/": self._serve},
            tls=certificates,
            tls_options=tls_options,
            max_body=MAX_BODY,
            name=self.name,
        )

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.port

    def need_leader_election(self) -> bool:
        """Return False: every replica answers updates."""
        return False

    def check(self) -> str:
        """Return a remark for readiness if the manager may not authorize clients, otherwise an empty text.

        Raise NotHealthyError until updates are served.
        """
        if self._handler is None:
            raise healthz.NotHealthyError("the status server has not been started yet")
        return self._handler.denied

    def check_alive(self) -> None:
        """Raise NotHealthyError if updates were served and are no longer.

        Before the first start, it passes: a restart of the manager does not bring a certificate.
        """
        if self._has_served and self._handler is None:
            raise healthz.NotHealthyError("the status server has ended")

    async def start(self) -> None:
        """Serve until cancelled.

        Raises:
            CertificateError: there are no certificates.
            ServerError: the address cannot be bound, or the TLS options cannot be used.
        """
        certificates = self._certificates
        if not isinstance(certificates, CertWatcher):
            await certificates.served()
        certificates.context()
        self._server.listen()
        async with (
            rest.Transport(self._connection) as transport,
            rest.Transport(self._reads) as reads,
            anyio.create_task_group() as tasks,
        ):
            if isinstance(certificates, CertWatcher):
                tasks.start_soon(certificates.start)
            statuses = client.LiveClient(transport, self._mapper).status
            owners = PodOwners(client.LiveClient(reads, self._mapper), self._cached)
            authorizer = ProjectedServiceAccountTokenAuthorizer(Issuer(reads), owners.require)
            self._handler = StatusHandler(statuses, authorizer.authorize)
            self._has_served = True
            _log.info("Serving status server", port=self.port)
            try:
                await self._server.start()
            finally:
                self._handler = None

    async def _serve(self, request: serving.HTTPRequest) -> serving.HTTPResponse:
        if self._handler is None:
            raise healthz.NotHealthyError("the status server is not running")
        return await self._handler(request)


def setup_server(
    mgr: ctrl.Manager,
    cfg: StatusServerConfiguration,
    certificates: Certificates | CertWatcher,
    tls_options: serving.TLSOptions,
    *,
    probes_of_v2_4: bool = False,
) -> StatusServer:
    """Add the status server and its readiness check to a manager.

    With ``probes_of_v2_4``, the checks of readiness and of liveness have the names that Trainer's main branch gives
    them. Trainer connects to its own port. Here, that could fail because of the load that pods cause, and the liveness
    probe would then restart the manager.
    """
    server = StatusServer(mgr, cfg, certificates, tls_options)
    mgr.add(server)
    mgr.add_readyz_check("status-server-readyz" if probes_of_v2_4 else "status-server", server.check)
    if probes_of_v2_4:
        mgr.add_healthz_check("status-server-healthz", server.check_alive)
    return server
