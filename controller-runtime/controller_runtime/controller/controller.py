# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A controller: sources fill its queue, workers take requests out and reconcile them.

It starts its sources, waits until they have synced, and then starts its workers. It stops in the
reverse order: it hands out no more requests, lets running reconciles finish, and ends
its sources. :meth:`Controller._conclude` alone handles the outcome of a reconcile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import fairness, log, metrics, source, workqueue
from controller_runtime.machinery import GVK, NamespacedName, arguments, raised
from controller_runtime.manager import ControllerDefaults
from controller_runtime.reconcile import (
    ControllerError,
    PanicError,
    Reconciler,
    ReconcileTimeoutError,
    Request,
    Result,
)
from controller_runtime.reconcile import check as check_reconciler

from . import outcomes

if TYPE_CHECKING:
    from controller_runtime import tracing

_log = log.logger_from("controller")

SUCCESS: Final = "success"
REQUEUE_AFTER: Final = "requeue_after"
ERROR: Final = "error"
_RESULTS: Final = (ERROR, REQUEUE_AFTER, "requeue", SUCCESS)

_current: Final[ContextVar[str]] = ContextVar("reconcile_id", default="")
"""The ID of the reconcile that the current task runs."""


def reconcile_id() -> str:
    """Return the ID under which logs show the current reconcile, or an empty string outside a reconcile."""
    return _current.get()


def _new_id() -> str:
    """Return a UUID for logs. It may be predictable: one from the system's random numbers would cost more."""
    text = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


LogConstructor = Callable[[Request | None], Mapping[str, object]]
"""Returns keys and values to add to log lines: to all lines of a controller if called with None, otherwise to the lines
about the request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one controller. None selects the manager's default or, without a manager, the default stated here.

    A duration of 0 is the same as None.
    """

    max_concurrent_reconciles: int | None = None
    """Number of workers, each of which reconciles one request at a time. The default is the manager's value for the
    kind (``group_kind_concurrency``) or, if there is none, the manager's value for all controllers. Without a manager,
    it is 1.

    Namespaces take turns for the workers. If there are several workers and one namespace occupies them, for example
    because the API server answers slowly, as many further workers serve namespaces that have at least two reconciles
    less in progress."""
    rate_limiter: workqueue.RateLimiter[Request] | None = None
    """Decides how long failed requests wait. By default, a request waits 5 ms after its first failure, and twice as
    long after each further failure, up to 1000 s. All requests together are limited to 10 retries a second after a
    burst of 100. Failures of the server (5xx, 429, conflicts) are counted separately, by a copy of the limiter; copies
    of a :class:`controller_runtime.workqueue.BucketRateLimiter` share their bucket. The limiter is not asked if the
    server cannot be reached, or if the server's answer contains a delay."""
    recover_panic: bool | None = None
    """Whether a programming error in the reconciler (e.g. a TypeError) is handled like other errors (default: true). If
    false, such an error ends the controller, which ends the manager."""
    need_leader_election: bool | None = None
    """Whether only a leader reconciles (default: true)."""
    enable_warmup: bool | None = None
    """Whether a follower already lists and watches the kinds of this controller (default: true). If so, a new leader
    need not list them after a failover, but each follower needs memory for the objects and keeps watches open."""
    cache_sync_timeout: timedelta | float | None = None
    """How long the first lists may take (default: 120 seconds). The start does not wait for a kind that is refused."""
    reconciliation_timeout: timedelta | float | None = None
    """How long a reconcile may take before it is cancelled and tried again (default: no limit). A negative duration is
    no limit, too."""
    kind: GVK | None = None
    """The kind that is reconciled, for logs and ``group_kind_concurrency``; ``for_`` of a builder sets it."""
    log_constructor: LogConstructor | None = None
    """Returns keys and values that are added to log lines. A value replaces another value with the same key."""
    skip_name_validation: bool | None = None
    """Whether another controller of the manager may have the same name (default: false)."""

    def with_defaults(self, defaults: ControllerDefaults | None = None) -> Settings:
        """Return these options with every default filled in.

        Raises:
            ControllerError: an option has a wrong type, or ``max_concurrent_reconciles`` is less than 1.
            TypeError: ``log_constructor`` is not a plain function of one argument.
        """
        if problem := arguments.problem_of(self):
            raise ControllerError(f"ControllerOptions: {problem}")
        limiter: object = self.rate_limiter
        if isinstance(limiter, type) or (limiter and not callable(getattr(limiter, "when", None))):
            given = f"the class {limiter.__name__}" if isinstance(limiter, type) else type(limiter).__name__
            raise ControllerError(f"ControllerOptions: rate_limiter must be a RateLimiter, not {given}")
        if self.log_constructor is not None:
            arguments.must_be_plain(self.log_constructor)
            arguments.must_take(self.log_constructor, "request")
        defaults = defaults or ControllerDefaults()
        workers = self.max_concurrent_reconciles
        if workers is None and self.kind is not None:
            workers = defaults.group_kind_concurrency.get(str(self.kind.group_kind))
        if workers is None:
            workers = defaults.max_concurrent_reconciles
        if type(workers) is not int:
            raise ControllerError(f"the number of workers must be int, not {type(workers).__name__}")
        if workers < 1:
            raise ControllerError(f"max_concurrent_reconciles is {workers}: a controller needs a worker")
        sync, timeout = self.cache_sync_timeout, self.reconciliation_timeout
        if not sync:
            sync = defaults.cache_sync_timeout
        if not timeout:
            timeout = defaults.reconciliation_timeout
        return Settings(
            max_concurrent_reconciles=workers,
            rate_limiter=self.rate_limiter or workqueue.default_controller_rate_limiter(),
            recover_panic=_either(self.recover_panic, defaults.recover_panic),
            need_leader_election=_either(self.need_leader_election, defaults.need_leader_election),
            enable_warmup=_either(self.enable_warmup, defaults.enable_warmup),
            cache_sync_timeout=_seconds(sync),
            reconciliation_timeout=_seconds(timeout) if timeout and _seconds(timeout) > 0 else None,
            kind=self.kind,
            log_constructor=self.log_constructor,
            skip_name_validation=_either(self.skip_name_validation, defaults.skip_name_validation),
        )


ControllerOptions = Options
"""The name that ``controller_runtime`` exports."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """:class:`Options` with all defaults filled in; durations are seconds."""

    max_concurrent_reconciles: int
    rate_limiter: workqueue.RateLimiter[Request]
    recover_panic: bool
    need_leader_election: bool
    enable_warmup: bool
    cache_sync_timeout: float
    reconciliation_timeout: float | None
    kind: GVK | None
    log_constructor: LogConstructor | None
    skip_name_validation: bool


def _seconds(duration: timedelta | float) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _either(own: bool | None, default: bool) -> bool:
    return default if own is None else own


class Controller:
    """A runnable that runs a reconciler. It can be started once."""

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        options: Options | None = None,
        *,
        defaults: ControllerDefaults | None = None,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        """Make a controller; ``name`` identifies it in logs and metrics.

        ``defaults`` apply to the fields that ``options`` leave unset.

        Raises:
            ControllerError: ``name`` is empty, ``reconciler`` cannot reconcile, or there is no worker.
        """
        if not name:
            raise ControllerError("a controller needs a name")
        try:
            check_reconciler(reconciler)
        except ControllerError as error:
            raise ControllerError(f"controller {name}: {error}") from None
        self.name = name
        self.settings = settings = (options or Options()).with_defaults(defaults)
        self.queue: workqueue.PriorityQueue[Request] = workqueue.PriorityQueue(
            name, rate_limiter=settings.rate_limiter, flow=attrgetter("namespace")
        )
        self._retries = outcomes.Retries(settings.rate_limiter)
        self._retry_observers: list[Callable[[Request, Exception, float], None]] = []
        self._reconciler = reconciler
        self._new_id = new_id
        self._time = metrics.RECONCILE_TIME.labels(name)
        self._successes = metrics.RECONCILE_TOTAL.labels(name, SUCCESS)
        self._sources: list[source.Source] = []
        self._start_soon: Callable[..., object] | None = None
        """Starts the task of a source in the context of :meth:`start`. None unless the controller runs."""
        self._started = False
        self._traces = True
        self._changed = anyio.Event()
        self._ready = anyio.Event()
        self._stopping = anyio.Event()

    def need_leader_election(self) -> bool:
        """Return True if only a leader may run the controller."""
        return self.settings.need_leader_election

    def watch(self, src: source.Source) -> None:
        """Add a source of requests. It starts with the controller, or now if the controller has started."""
        if self._start_soon is not None:
            self._start_soon(self._run_source, src)
        else:
            self._sources.append(src)
            self._changed.set()

    def instrument(self, by: tracing.Tracing, uids: tracing.UIDs) -> None:
        """Record spans of every reconcile; call it before the start. ``uids`` returns the uid of an object."""
        from controller_runtime import tracing

        subject = tracing.Subject(self.name, self.settings.kind, self.queue, uids)
        self.wrap(lambda reconciler: by.reconciler(reconciler, subject))

    def wrap(self, wrapper: Callable[[Reconciler], Reconciler]) -> None:
        """Run the reconciler that ``wrapper`` returns for the present one; call this before the start."""
        self._reconciler = wrapper(self._reconciler)

    def on_retry(self, observe: Callable[[Request, Exception, float], None]) -> None:
        """Call ``observe`` for each failed reconcile with the request, the error and the seconds until the retry."""
        self._retry_observers.append(observe)

    async def warm_up(self) -> None:
        """Start the watches early: a follower may wait a long time before its controllers start.

        This method returns when the controller starts; sources that are added until then are warmed up, too. The queue
        stays empty and no metric changes: the sources deliver events only after the start, from caches that are already
        filled.
        """
        if not self.settings.enable_warmup:
            return
        warm: list[source.Source] = []  # by identity: sources need not be hashable
        while not self._started:
            cold = [src for src in self._sources if not any(src is other for other in warm)]
            for src in cold:
                if isinstance(src, source.SyncingSource):
                    await src.warm_up()
            warm += cold
            if not cold:
                self._changed = anyio.Event()
                await self._changed.wait()

    async def ready(self) -> None:
        """Return when the workers run."""
        await self._ready.wait()

    def stop(self) -> None:
        """Make :meth:`start` return when the running reconciles are done. To cancel them, cancel ``start`` instead."""
        self._stopping.set()
        self.queue.shut_down()

    async def start(self) -> None:
        """Run until :meth:`stop` is called, or this call is cancelled.

        Raises:
            CacheSyncTimeoutError: a kind was neither listed nor refused within ``cache_sync_timeout``.
            ControllerError: the controller was started before; or its workers or the source of a kind ended, although
                nothing had stopped the controller.
            Exception: a source failed, or the reconciler panicked and ``recover_panic`` is false.
        """
        if self._started:
            raise ControllerError(f"controller {self.name} was started before: was it added twice?")
        self._started = True
        self._changed.set()
        # Check the log level only here: a trace line costs several microseconds even if it is not written.
        self._traces = _log.enabled(log.TRACE)
        _show_metrics(self.name, self.settings.max_concurrent_reconciles)
        with log.into_context(**_fields(self.name, self.settings)):
            try:
                await self._run()
            except BaseExceptionGroup as group:
                raise outcomes.only_member(group) from None
            finally:
                self.queue.shut_down()

    async def _run(self) -> None:
        async with anyio.create_task_group() as sources:
            self._start_soon = fairness.in_this_context(sources.start_soon)
            waiting, self._sources = self._sources, []
            for src in waiting:
                self._start_soon(self._run_source, src)
            async with anyio.create_task_group() as syncing:
                syncing.start_soon(self._until_stopped, syncing.cancel_scope)
                _log.debug("Starting Controller")
                async with anyio.create_task_group() as syncs:
                    for src in waiting:
                        if isinstance(src, source.SyncingSource):
                            syncs.start_soon(self._sync, src)
                syncing.cancel_scope.cancel()
            if not self._stopping.is_set():
                _log.info("Starting workers", workerCount=self.settings.max_concurrent_reconciles)
                async with anyio.create_task_group() as workers:
                    count = self.settings.max_concurrent_reconciles
                    for _ in range(count):
                        workers.start_soon(self._work, False, name=f"controller {self.name}")
                    # One namespace with slow reconciles can occupy all these workers. Each of them then has an express
                    # worker, which is idle otherwise. With one worker, there is nothing to share fairly.
                    for _ in range(count if count > 1 else 0):
                        workers.start_soon(self._work, True, name=f"controller {self.name}")
                    self._ready.set()
            _log.info("All workers finished")
            self._start_soon = None
            sources.cancel_scope.cancel()
        if not self._stopping.is_set():
            raise ControllerError(f"controller {self.name} ended although it was not stopped")

    async def _until_stopped(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _run_source(self, src: source.Source) -> None:
        _log.debug("Starting EventSource", source=str(src))
        with raised.foreign():
            await src.start(self.queue)
        if isinstance(src, source.SyncingSource):
            raise ControllerError(f"{src} ended although controller {self.name} was not stopped")
        _log.debug("EventSource ended", source=str(src))

    async def _sync(self, src: source.SyncingSource) -> None:
        with raised.foreign():
            await src.wait_for_sync(self.settings.cache_sync_timeout)
        if src.problem is not None:
            _log.warning("EventSource is degraded, going on without it", source=str(src), reason=src.problem)

    async def _work(self, express: bool) -> None:
        """Reconcile requests. An ``express`` worker is idle as long as no namespace occupies workers that others need.

        Without express workers, one namespace could occupy all workers with reconciles that wait for large objects, for
        slow answers of the API server or for the client's rate limit.
        """
        active = metrics.ACTIVE_WORKERS.labels(self.name)
        while True:
            try:
                request, priority = await self.queue.get_with_priority(express=express)
            except workqueue.QueueShutDownError:
                return
            # Not reset: a task that outlives its reconcile keeps its own tenant, and the next request sets another one.
            fairness.work_for(fairness.Tenant(request.namespace))
            active.inc()
            try:
                await self._handle(request, priority)
            finally:
                active.dec()
                self.queue.done(request)
            # A full queue, or a reconciler that never waits, must not block the loop.
            await anyio.lowlevel.checkpoint()

    async def _handle(self, request: Request, priority: int) -> None:
        """Reconcile one request, measure the time, and handle the outcome."""
        ident = self._new_id()
        token = _current.set(ident)
        began = time.perf_counter()
        try:
            with log.into_context(**{"reconcileID": ident, **_fields(self.name, self.settings, request)}):
                if self.queue.triggers.wanted():
                    _log.debug("Reconciling", triggers=self.queue.triggers.take(request))
                self._conclude(request, await self._reconcile(request), priority)
        finally:
            _current.reset(token)
            self._time.observe(time.perf_counter() - began)

    async def _reconcile(self, request: Request) -> Result | Exception:
        """Call the reconciler, and return its result or its error."""
        # An error refers to the frames through which it was raised. If such a frame also refers to the error, only the
        # garbage collector can free the two.
        timeout = self.settings.reconciliation_timeout
        try:
            if timeout is None:
                return _checked(await self._reconciler.reconcile(request))
            with anyio.move_on_after(timeout):
                return _checked(await self._reconciler.reconcile(request))
            metrics.RECONCILE_TIMEOUTS.labels(self.name).inc()
            raise ReconcileTimeoutError(f"reconcile was cancelled after {timeout:g} s")  # noqa: TRY301
        except SystemExit as error:
            return raised.as_error(error)
        except asyncio.CancelledError as error:
            return raised.as_error(error)
        except Exception as error:
            return self._recover(error)

    def _recover(self, error: Exception) -> Exception:
        error = raised.readable(error)
        if not outcomes.is_panic(error):
            return error
        metrics.RECONCILE_PANICS.labels(self.name).inc()
        if not self.settings.recover_panic:
            _log.error("Observed a panic in reconciler", error=error)
            raise error
        panic = PanicError(f"panic: {raised.name(error)}: {log.describe(error)} [recovered]")
        panic.__cause__ = error
        return panic

    def _conclude(self, request: Request, outcome: Result | Exception, priority: int) -> None:
        """Handle the outcome of a reconcile: requeue or forget the request, count the outcome, and log errors."""
        failed: BaseException | None = outcome if isinstance(outcome, Exception) else None
        try:
            self._requeue(request, outcome, priority)
        except raised.FAILURES as error:  # from the rate limiter, or from an attribute of the outcome
            self.queue.add(request, priority=priority, after=outcomes.SERVER_DELAY)
            both = [raised.readable(failure) for failure in (failed, error) if failure is not None]
            failed = BaseExceptionGroup("the outcome of a reconcile cannot be handled", both)
        if failed is not None:
            metrics.RECONCILE_ERRORS.labels(self.name).inc()
            metrics.RECONCILE_TOTAL.labels(self.name, ERROR).inc()
            _log.error("Reconciler error", error=failed)
            raised.release(failed)

    def _requeue(self, request: Request, outcome: Result | Exception, priority: int) -> None:
        if isinstance(outcome, Exception):
            if outcomes.is_terminal(outcome) or outcomes.is_undecodable(outcome, request, self.settings.kind):
                metrics.TERMINAL_RECONCILE_ERRORS.labels(self.name).inc()
                self._retries.forget(request)
            else:
                self.queue.triggers.note(request, f"retry after {raised.name(outcome)}")
                delay = self._retries.delay(request, outcome)
                for observe in self._retry_observers:
                    observe(request, outcome, delay)
                self.queue.add(request, priority=priority, after=delay)
                if outcomes.is_unreachable(outcome):
                    return
            self._retry_waiting(request)
            return
        self._retry_waiting(request)
        if outcome.priority is not None:
            priority = outcome.priority
        if (after := outcome.requeue_after) is not None and after.total_seconds() > 0:
            if self._traces:
                _log.trace("Reconcile done, requeueing", after=after)
            self._retries.forget(request)
            self.queue.triggers.note(request, "requeue_after of the reconciler")
            self.queue.add(request, priority=priority, after=after.total_seconds())
            metrics.RECONCILE_TOTAL.labels(self.name, REQUEUE_AFTER).inc()
        else:
            if self._traces:
                _log.trace("Reconcile successful")
            self._retries.forget(request)
            self._successes.inc()

    def _retry_waiting(self, request: Request) -> None:
        """If ``request`` waited for the server, the server can be reached again: retry the other waiting requests."""
        for waiting in self._retries.reached(request):
            self.queue.add(waiting, priority=workqueue.LOW_PRIORITY)


def _checked(result: object) -> Result:
    if not isinstance(result, Result):
        raise TypeError(f"reconcile returned {type(result).__name__}, not a Result")
    return result


def _show_metrics(name: str, workers: int) -> None:
    """Create all metric series of a controller, so that they exist before its first reconcile."""
    for result in _RESULTS:
        metrics.RECONCILE_TOTAL.labels(name, result)
    for counter in (
        metrics.RECONCILE_ERRORS,
        metrics.TERMINAL_RECONCILE_ERRORS,
        metrics.RECONCILE_PANICS,
        metrics.RECONCILE_TIMEOUTS,
    ):
        counter.labels(name)
    metrics.MAX_CONCURRENT_RECONCILES.labels(name).set(workers)
    metrics.ACTIVE_WORKERS.labels(name).set(0)


def _fields(name: str, settings: Settings, request: Request | None = None) -> dict[str, object]:
    """Return the log fields of a controller. With ``request``, return only the fields about the request.

    An error of the ``log_constructor`` is logged.
    """
    fields: dict[str, object] = {}
    gvk = settings.kind
    if request is None:
        fields["controller"] = name
        if gvk is not None:
            fields |= {"controllerGroup": gvk.group, "controllerKind": gvk.kind}
    else:
        if gvk is not None:
            fields[gvk.kind[:1].lower() + gvk.kind[1:]] = NamespacedName(*request)
        fields |= {"namespace": request.namespace, "name": request.name}
    if settings.log_constructor is not None:
        try:
            fields.update({str(key): value for key, value in settings.log_constructor(request).items()})
        except raised.FAILURES as error:
            _log.error("The log_constructor failed", controller=name, error=error)
    return fields
