# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The servers that a manager's options turn on: metrics, health probes and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from controller_runtime import client, healthz, metrics, rest, webhook
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import StatusError
from controller_runtime.serving import Address, Server, TLSProvider

from .options import OFF, Options
from .runnable_group import Runnable

T = TypeVar("T", bound=Object)


class Servers(msgspec.Struct):
    """The servers that were built; a server that is off is None."""

    metrics: metrics.MetricsServer | None = None
    health: Server | None = None
    pprof: Server | None = None
    runnables: list[Runnable] = []
    """The servers, and the runnables that they need."""


def build(
    options: Options,
    reviews: client.LiveClient,
    live: Mapping[str, healthz.Checker],
    ready: Mapping[str, healthz.Checker],
) -> Servers:
    """Return the servers that ``options`` turn on; the metrics filter creates access reviews with ``reviews``.

    Raises:
        ServerError: an address is not valid.
        ValueError: an extra handler's path is taken or is not absolute.
    """
    made = Servers()
    if options.metrics_bind_address not in OFF:
        made.metrics = _metrics(options, reviews, made.runnables)
        made.runnables.append(made.metrics)
    if options.health_probe_bind_address not in OFF:
        address = Address.parse(options.health_probe_bind_address)
        liveness = healthz.HealthHandler(options.liveness_endpoint_name, live)
        readiness = healthz.HealthHandler(options.readiness_endpoint_name, ready)
        routes = {**liveness.routes(), **readiness.routes()}
        made.health = Server(address, routes, name="health probe server")
        made.runnables.append(made.health)
    if options.pprof_bind_address not in OFF:
        from controller_runtime.manager import pprof  # imported only if the server is on

        address = Address.parse(options.pprof_bind_address)
        made.pprof = Server(address, pprof.routes(), name="pprof server")
        made.runnables.append(made.pprof)
    return made


def _metrics(
    options: Options, reviews: client.LiveClient, runnables: list[Runnable]
) -> metrics.MetricsServer:
    provider = options.metrics_filter
    return metrics.MetricsServer(
        Address.parse(options.metrics_bind_address),
        tls=_metrics_tls(options, runnables) if options.metrics_secure else None,
        tls_options=options.metrics_tls_options,
        filter_=provider(_Reviewer(reviews)) if provider is not None else None,
        extra=options.metrics_extra_handlers,
    )


def _metrics_tls(options: Options, runnables: list[Runnable]) -> TLSProvider:
    cert_dir = Path(options.metrics_cert_dir)
    cert, key = cert_dir / "tls.crt", cert_dir / "tls.key"
    if not (options.metrics_cert_dir and cert.exists() and key.exists()):
        return webhook.SelfSigned()
    watcher = webhook.CertWatcher(cert, key)
    runnables.append(watcher)
    return watcher


class _Reviewer:
    """Creates access reviews. If that fails, it raises ReviewError, which the metrics server handles."""

    def __init__(self, client_: client.LiveClient) -> None:
        self._client = client_

    async def create(self, review: T, /) -> T:
        try:
            return await self._client.create(review)
        except (StatusError, rest.RestError) as error:
            raise metrics.ReviewError(str(error)) from error
