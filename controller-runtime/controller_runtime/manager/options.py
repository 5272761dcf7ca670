# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a manager, whose durations are seconds, and the servers that they turn on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from controller_runtime import cache, client, healthz, metrics, rest, webhook
from controller_runtime.machinery import Object, Scheme
from controller_runtime.machinery.errors import StatusError
from controller_runtime.serving import Address, Handler, Server, TLSOptions, TLSProvider

from .lifecycle import Runnable

if TYPE_CHECKING:
    from controller_runtime.metrics import FilterProvider
    from controller_runtime.tracing import Tracing

T = TypeVar("T", bound=Object)
OFF: Final = ("", "0")
"""Addresses that turn a server off."""


@dataclass(frozen=True, kw_only=True)
class ControllerDefaults:
    """Defaults of every controller: ``Options(controller=ControllerDefaults(…))``.

    For the options of one controller, see ``controller.Options``.
    """

    group_kind_concurrency: Mapping[str, int] = field(default_factory=dict)
    """Number of workers for each ``Kind.group``."""
    max_concurrent_reconciles: int = 1
    """Number of workers of any other controller."""
    cache_sync_timeout: float = 120.0
    recover_panic: bool = True
    need_leader_election: bool = True
    enable_warmup: bool = True
    """Whether a follower watches the kinds of its controllers before it is elected."""
    reconciliation_timeout: float | None = None
    skip_name_validation: bool = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a manager listens, leads and stops. Most defaults are those of controller-runtime for Go."""

    scheme: Scheme = field(default_factory=Scheme)
    cache: cache.Options = field(default_factory=cache.Options)
    client_disable_cache_for: Collection[type[Object]] = ()
    """Kinds that the client reads from the server instead of the cache."""
    client_live_unstructured: bool = False
    """Whether the client reads kinds without a model from the server. By default it reads them from the cache, which
    watches such a kind from the first read on. For example, a map function that lists such a kind for each event then
    causes one list request in total."""
    client_field_validation: client.FieldValidation | None = None
    """How the server handles unknown fields in the client's writes; None uses the server's default."""
    controller: ControllerDefaults = field(default_factory=ControllerDefaults)
    user_agent: str = ""
    """The user agent of the manager's requests: see :func:`controller_runtime.rest.user_agent`. If empty, the manager
    uses the user agent of the connection's configuration. The part before the slash is the field manager of writes that
    name no field owner."""

    leader_election: bool = False
    leader_election_id: str = ""
    leader_election_namespace: str = ""
    """The namespace of the lease. If empty, the manager uses the namespace of the connection's configuration; in a pod,
    this is the namespace of the pod."""
    leader_election_release_on_cancel: bool = True
    """Whether the manager releases the lease when it stops, so that other replicas need not wait until it expires."""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    metrics_bind_address: str = ":8080"
    metrics_secure: bool = False
    metrics_cert_dir: str = ""
    """The folder of tls.crt and tls.key; without these files, the process makes a self-signed certificate."""
    metrics_filter: FilterProvider | None = None
    """Authorizes the metrics server's clients; if None, every client is served. See
    :func:`controller_runtime.metrics.with_authentication_and_authorization`."""
    metrics_extra_handlers: Mapping[str, Handler] = field(default_factory=dict)
    """More handlers for the metrics server, by path. The filter also protects these handlers."""
    metrics_tls_options: TLSOptions | None = None
    """The TLS options of the metrics server. They apply only if ``metrics_secure`` is true."""

    health_probe_bind_address: str = "0"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"

    pprof_bind_address: str = ""
    """The address of the server for profiles; if empty, the server is off. The server has no authorization, so use a
    loopback address: see :mod:`controller_runtime.manager.pprof`."""

    tracing: Tracing | None = None
    """Records OpenTelemetry spans: see :func:`controller_runtime.tracing.from_environment`. If None, no spans are
    recorded."""

    webhook_host: str = ""
    webhook_port: int = 9443
    webhook_cert_dir: str = ""
    webhook_tls_options: TLSOptions | None = None
    """The TLS options of the webhook server."""

    graceful_shutdown_timeout: float = 30.0
    """Seconds in which all components together must stop; a negative number means no limit, and zero means that all are
    cancelled at once."""
    connect_timeout: float = 10.0
    """Seconds for which the start waits for an unreachable API server; zero skips this check."""


class Servers(msgspec.Struct):
    """The servers that were built; a server that is off is None."""

    metrics: metrics.MetricsServer | None = None
    health: Server | None = None
    pprof: Server | None = None
    runnables: list[Runnable] = []
    """The servers, and the runnables that they need."""


def build_servers(
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
        tls: TLSProvider | None = webhook.SelfSigned() if options.metrics_secure else None
        cert, key = (Path(options.metrics_cert_dir) / name for name in ("tls.crt", "tls.key"))
        if options.metrics_secure and options.metrics_cert_dir and cert.exists() and key.exists():
            tls = watcher = webhook.CertWatcher(cert, key)
            made.runnables.append(watcher)
        made.metrics = metrics.MetricsServer(
            Address.parse(options.metrics_bind_address),
            tls=tls,
            tls_options=options.metrics_tls_options,
            filter_=None if options.metrics_filter is None else options.metrics_filter(_Reviewer(reviews)),
            extra=options.metrics_extra_handlers,
        )
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


class _Reviewer:
    """Creates access reviews. If that fails, it raises ReviewError, which the metrics server handles."""

    def __init__(self, client_: client.LiveClient) -> None:
        self._client = client_

    async def create(self, review: T, /) -> T:
        try:
            return await self._client.create(review)
        except (StatusError, rest.RestError) as error:
            raise metrics.ReviewError(str(error)) from error
