# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Manager: the components that the controllers of one process share.

A manager starts its components in groups: the event broadcaster, servers, webhooks, caches together with warm-ups,
other runnables and, after the election, the runnables that only a leader runs. Each group starts when the previous one
is ready. Within the grace period, the manager stops other runnables, the leader's runnables, warm-ups, caches, webhooks
and servers, in this order. Then it releases the lease and stops the broadcaster. If a component fails, the manager
stops everything, and ``start`` raises the first failure.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import socket
import ssl
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio

from controller_runtime import cache, client, healthz, log, metrics, recorder, rest, webhook
from controller_runtime.machinery import NamespacedName, Object, arguments
from controller_runtime.serving import Handler, ServerError

from .lifecycle import (
    CacheRunnable,
    CredentialsError,
    LeaderElectionRunnable,
    Lifecycle,
    ManagerError,
    Runnable,
    UnreachableError,
    WarmsUp,
    WarmUp,
)
from .options import ControllerDefaults, Options, build_servers
from .watchdog import Watchdog

if TYPE_CHECKING:
    from controller_runtime import leaderelection
    from controller_runtime.apis.core.v1 import Event

T = TypeVar("T", bound=Object)
_INFORMERS: Final = "informers"
_CONNECT_RETRY: Final = 1.0
"""Seconds between requests until the API server answers for the first time."""
_ATTEMPT_TIMEOUT: Final = 4.0
"""Seconds that an attempt to reach the server may take. The value is small, so that failures are logged soon."""

_OF_AN_API_SERVER: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of GET /version between 300 and 499 that an API server may have. With any other, the path or the scheme of
the address is wrong, or a proxy asks for a login."""

_log = log.logger_from("controller-runtime.manager")


class Manager:
    """Owns the clients, the cache, the servers and the runnables of one process.

    Build a manager, register controllers and webhooks, then ``await start()``. Within ``async with``, ``api_reader``
    and the writes of ``client`` work even before the start; reads from the cache do not. ``transport`` replaces the one
    that the manager would create, for tests and special set-ups.
    """

    def __init__(
        self,
        config: rest.Config,
        options: Options | None = None,
        *,
        transport: rest.RoundTripper | None = None,
    ) -> None:
        """Build everything that needs no network.

        Raises:
            ManagerError: the options contradict each other, an address is not valid, or ``config`` is no Config.
        """
        given_config: object = config
        if not isinstance(given_config, rest.Config):
            hint = ": await ctrl.load_config()" if inspect.isawaitable(given_config) else ""
            raise ManagerError(f"a manager needs a Config, not {type(given_config).__name__}{hint}")
        self.options = options or Options()
        self._observers: list[Callable[[Runnable], None]] = []
        if (tracing := self.options.tracing) is not None:
            self.on_add(lambda runnable: tracing.instrument(runnable, self.cache.uid_at))
        defaults: object = self.options.controller
        if not isinstance(defaults, ControllerDefaults):
            given = type(defaults).__name__
            raise ManagerError(f"Options(controller=…) takes ctrl.ControllerDefaults, not {given}")
        cached: object = self.options.cache
        if not isinstance(cached, cache.Options):
            raise ManagerError(f"Options(cache=…) takes cache.Options, not {type(cached).__name__}")
        if problem := arguments.problem_of(self.options) or arguments.problem_of(defaults):
            raise ManagerError(f"Options: {problem}")
        if self.options.user_agent:
            config = dataclasses.replace(config, user_agent=self.options.user_agent)
        self.config = config
        self.logger = _log
        self.scheme = self.options.scheme
        self.metrics = metrics.REGISTRY
        self.controller_options = self.options.controller
        self.controller_names: set[str] = set()
        """The names that are in use. Logs and metrics distinguish controllers by name."""
        self._owned: list[AbstractAsyncContextManager[object]] = []
        self._elector: leaderelection.Elector | None = None
        self._unanswered_at = -math.inf
        own = transport or self._transport(config, fenced=self.options.leader_election)
        main = own if self.options.tracing is None else self.options.tracing.round_tripper(own)
        # Events and leases use their own transport, so that requests of reconcilers do not delay them.
        unthrottled = transport or self._transport(dataclasses.replace(config, qps=0))
        self.rest_mapper = rest.RESTMapper(main)
        self.api_reader = client.LiveClient(
            main, self.rest_mapper, field_validation=self.options.client_field_validation
        )
        self._unthrottled = client.LiveClient(unthrottled, self.rest_mapper)
        self.cache = cache.Cache(main, mapper=self.rest_mapper, options=self.options.cache)
        self.field_indexer: client.FieldIndexer = self.cache
        self.client: client.Client = client.CachedClient(
            self.api_reader,
            self.cache,
            uncached=self.options.client_disable_cache_for,
            live_unstructured=self.options.client_live_unstructured,
        )
        self._main = main
        self._first_status = 0
        self._broadcaster = recorder.Broadcaster(self._unthrottled)
        self._elector = self._new_elector(threaded=transport is None)
        self._lifecycle = Lifecycle(
            grace=self.options.graceful_shutdown_timeout,
            connect=self._connect,
            elector=self._elector,
            may_release=self._may_release,
            on_elected=self._report_leading,
        )
        self.elected = self._lifecycle.elected
        """Set when the runnables that only a leader runs are ready. They start last, so all others are ready, too."""
        self._healthz: dict[str, healthz.Checker] = {}
        self._readyz: dict[str, healthz.Checker] = {_INFORMERS: self._check_informers}
        self._webhook_server: webhook.Server | None = None
        self._lifecycle.events.add(self._broadcaster)
        # A server in memory may run in a simulated loop, which has a clock of its own.
        if transport is None or getattr(transport, "over_network", False):
            self._lifecycle.events.add(Watchdog(self.options.graceful_shutdown_timeout))
        self._lifecycle.caches.add(CacheRunnable(self.cache, self.options.controller.cache_sync_timeout))
        try:
            self._servers = made = build_servers(self.options, self._unthrottled, self._healthz, self._readyz)
        except (ServerError, ValueError) as error:
            raise ManagerError(str(error)) from error
        if made.metrics is not None:
            self.metrics_server = made.metrics
        if made.health is not None:
            self.health_server = made.health
        if made.pprof is not None:
            self.pprof_server = made.pprof
        for server in made.runnables:
            self._lifecycle.servers.add(server)
        self._open = self._started = False

    async def published_schema(
        self, kind: type[Object], known: rest.PublishedSchema | None = None
    ) -> rest.PublishedSchema | None:
        """Return the schema of ``kind`` that the server publishes: see :func:`rest.published_schema`."""
        return await rest.published_schema(self._main, kind.gvk, known)

    # Registration.

    def add(self, runnable: Runnable) -> None:
        """Run ``runnable`` with the manager. If the manager has started already, ``runnable`` starts now.

        The runnable runs on the leader only, unless it is a webhook server or its ``need_leader_election`` returns
        False.

        Raises:
            GroupStoppedError: the manager is stopping.
            TypeError: ``runnable`` has no ``async`` method ``start``.
        """
        arguments.must_have_async(runnable, "start")
        for observe in self._observers:
            observe(runnable)
        if isinstance(runnable, webhook.Server):
            self._lifecycle.webhooks.add(runnable)
        elif isinstance(runnable, LeaderElectionRunnable) and not runnable.need_leader_election():
            self._lifecycle.others.add(runnable)
        else:
            self._lifecycle.leader_elected.add(runnable)
            if isinstance(runnable, WarmsUp):
                self._lifecycle.warm_up.add(WarmUp(runnable))

    def on_add(self, observe: Callable[[Runnable], None]) -> None:
        """Call ``observe`` with each runnable that is added from now on, before the runnable starts."""
        self._observers.append(observe)

    def add_healthz_check(self, name: str, check: healthz.Checker) -> None:
        """Add a check to the liveness endpoint; call it before the start.

        Raises:
            ManagerError: the manager has started, or the name is taken.
        """
        self._add_check(self._healthz, name, check)

    def add_readyz_check(self, name: str, check: healthz.Checker) -> None:
        """Add a check to the readiness endpoint. Raises like :meth:`add_healthz_check`."""
        self._add_check(self._readyz, name, check)

    def add_metrics_server_extra_handler(self, path: str, handler: Handler) -> None:
        """Serve ``handler`` on the metrics server, behind that server's filter; do nothing if the server is off.

        Raises:
            ManagerError: the path is taken or is not absolute.
        """
        try:
            if self._servers.metrics is not None:
                self._servers.metrics.add_extra_handler(path, handler)
        except ValueError as error:
            raise ManagerError(str(error)) from error

    def event_recorder_for(self, source: str) -> recorder.SourceRecorder:
        """Return a recorder with ``source`` as the reporting component of its events."""
        return self._broadcaster.recorder_for(source)

    def on_event(self, observe: Callable[[Event], None]) -> None:
        """Call ``observe`` with each event of a recorder that was sent, was refused, or was given up."""
        self._broadcaster.on_sent(observe)

    @property
    def webhook_server(self) -> webhook.Server:
        """The webhook server. The first access creates the server, which starts together with the manager.

        A server that is assigned before the first access is used instead.
        """
        if self._webhook_server is None:
            self._webhook_server = webhook.Server(
                self.options.webhook_host,
                self.options.webhook_port,
                self.options.webhook_cert_dir,
                tls_options=self.options.webhook_tls_options,
            )
            self.add(self._webhook_server)
        return self._webhook_server

    @webhook_server.setter
    def webhook_server(self, server: webhook.Server) -> None:
        self._webhook_server = server
        self.add(server)

    # For a transport that replaces the manager's own.

    def may_write(self) -> bool:
        """Return True unless a leader is elected and this process may not act as the leader now."""
        return self._elector is None or self._elector.may_act

    def note_unanswered(self) -> None:
        """Note that a write got no answer. Such a write may still take effect, so the lease is not released for now."""
        self._unanswered_at = anyio.current_time()

    # Lifecycle.

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        for owned in self._owned:
            await self._stack.enter_async_context(owned)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        await self._stack.aclose()

    async def reach(self, timeout: float) -> int:
        """Return the HTTP status of the API server's first answer. After this, :meth:`start` does not wait for an
        answer again.

        Raises:
            UnreachableError: no answer came within ``timeout`` seconds.
            CredentialsError: the server does not accept the credentials.
        """
        return await self._first_answer(timeout, rest.TransportTimeoutError)

    @property
    def identity(self) -> str:
        """The name under which this process stands for election as the leader; empty without leader election."""
        return "" if self._elector is None else self._elector.identity

    @property
    def synced(self) -> bool:
        """True as soon as the caches have synced at the start, if the manager was not asked to stop before."""
        return self._lifecycle.synced

    @property
    def abandoned(self) -> list[str]:
        """The names of runnables that did not end after they were cancelled: code in a thread cannot be cancelled.

        These runnables still run when ``start`` returns. ``asyncio.run`` and the interpreter would wait for them, so
        end the process with ``os._exit``.
        """
        return self._lifecycle.abandoned

    def stop(self) -> None:
        """Ask a running manager to stop; ``start`` returns when the manager has stopped."""
        self._lifecycle.stop.set()

    async def start(self, stop: anyio.Event | None = None) -> None:
        """Run until ``stop`` is set, :meth:`stop` is called, something fails or the task is cancelled.

        In each case, everything is stopped in order before this method returns.

        Raises:
            UnreachableError: the API server could not be reached.
            CredentialsError: the API server does not accept the credentials.
            LostLeadershipError: another replica leads, or may lead soon. The process must end.
            ManagerError: a runnable failed, or did not end within the grace period. The message names the runnable.
        """
        if self._started:
            raise ManagerError("manager already started")
        self._started = True
        async with nullcontext() if self._open else self:
            failure: list[ManagerError] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run, failure, tasks.cancel_scope)
                try:
                    await (stop or self._lifecycle.stop).wait()
                finally:
                    self._lifecycle.stop.set()
        if failure:
            raise failure[0]

    async def _run(self, failure: list[ManagerError], waiting: anyio.CancelScope) -> None:
        try:
            await self._lifecycle.run()
        except ManagerError as error:
            failure.append(error)
        waiting.cancel()

    async def _connect(self) -> None:
        if self.options.connect_timeout > 0:
            await self._first_answer(self.options.connect_timeout, rest.TransportError)

    async def _first_answer(self, timeout: float, logged: type[rest.TransportError]) -> int:
        """Return the HTTP status of the server's first answer, which is requested once. Log errors of class ``logged``
        before retries.
        """
        if self._first_status:
            return self._first_status
        deadline = anyio.current_time() + timeout
        while True:
            left = min(_ATTEMPT_TIMEOUT, max(_CONNECT_RETRY, deadline - anyio.current_time()))
            try:
                response = await self._main.send(rest.Request("GET", "/version", timeout=left))
                await response.close()
                break
            except rest.TransportError as error:
                if anyio.current_time() + _CONNECT_RETRY >= deadline:
                    cause: BaseException | None = error
                    while cause is not None and not isinstance(cause, ssl.SSLError):
                        cause = cause.__cause__
                    problem = await self.config.refused_because() if cause is not None else None
                    raise UnreachableError(
                        f"the API server cannot be reached: {error}" + (f": {problem}" if problem else "")
                    ) from error
                if isinstance(error, logged):
                    _log.info("API server cannot be reached yet", host=self.config.address, error=error)
            await anyio.sleep(_CONNECT_RETRY)
        self._first_status = status = response.status
        if status == HTTPStatus.UNAUTHORIZED:
            problem = await self.config.refused_because()
            raise CredentialsError(
                f"the API server does not accept the credentials: {self.config.address}"
                + (f": {problem}" if problem else "")
            )
        if 300 <= status < 500 and status not in _OF_AN_API_SERVER:
            _log.warning(
                "The address may not be that of an API server: GET /version failed",
                host=self.config.address,
                status=status,
            )
        return status

    def _report_leading(self, elector: leaderelection.Elector) -> None:
        self.event_recorder_for(elector.identity).event(
            elector.lease, recorder.NORMAL, "LeaderElection", f"{elector.identity} became leader"
        )

    # Building.

    def _transport(self, config: rest.Config, *, fenced: bool = False) -> rest.Transport:
        """Return a transport that, if it is ``fenced``, sends writes only while we lead."""
        if fenced:
            transport = rest.Transport(config, may_write=self.may_write, unanswered=self.note_unanswered)
        else:
            transport = rest.Transport(config)
        self._owned.append(transport)
        return transport

    def _may_release(self) -> bool:
        """Return True if the lease may be released: none of our writes can reach the server any more.

        A write that was cancelled or got no response may still be under way, for at most the duration of a lease.
        """
        quiet = anyio.current_time() - self._unanswered_at
        return self.options.leader_election_release_on_cancel and quiet > self.options.lease_duration

    def _new_elector(self, *, threaded: bool) -> leaderelection.Elector | None:
        """Return the elector, or None if the options turn the election off.

        With ``threaded``, and if the credentials can be used in another thread, the elector renews the lease in its own
        thread.

        Raises:
            ManagerError: the options are incomplete or contradict each other.
        """
        options = self.options
        if not options.leader_election:
            return None
        from controller_runtime import leaderelection  # here: a manager without an election does not need it

        namespace = options.leader_election_namespace or self.config.namespace
        if not options.leader_election_id:
            raise ManagerError("leader election needs an id, the name of its lease")
        if not namespace:
            raise ManagerError(
                "leader election needs a namespace: none is set, and the process does not run in a pod"
            )
        timing = leaderelection.Timing(
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
        )
        key = NamespacedName(namespace, options.leader_election_id)
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        connect = leaderelection.connection(self.config) if threaded else None
        try:
            if connect is None:
                return leaderelection.LeaderElector(self._unthrottled, key, identity, timing)
            elector = leaderelection.ThreadedElector(connect, key, identity, timing)
        except leaderelection.InvalidTimingError as error:
            raise ManagerError(f"leader election: {error}") from error
        self._owned.append(elector)
        return elector

    def _add_check(self, checks: dict[str, healthz.Checker], name: str, check: healthz.Checker) -> None:
        if self._started:
            raise ManagerError(f"check {name} was added after the start")
        if name in checks:
            raise ManagerError(f"check {name} exists already")
        checks[name] = check

    def _check_informers(self) -> str:
        remarks = self.cache.remarks()
        if not self._lifecycle.synced:
            raise healthz.NotHealthyError("; ".join(["caches have not synced yet", *remarks]))
        return "; ".join(remarks)
