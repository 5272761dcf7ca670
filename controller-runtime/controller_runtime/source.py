# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Sources of events: a watched kind, a channel or a function. Each source passes its events to a handler.

A source runs as a task of its controller and feeds that controller's queue. If the server does not serve a kind, or
denies access to it, the controller does not stop: the source waits for the kind, and other sources continue. Each event
goes through the predicates to the handler, in order. An event whose handler failed is retried.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.lowlevel

from controller_runtime import cache, event, handler, log, offload, predicate, reconcile, rest, workqueue
from controller_runtime.machinery import (
    LazyObject,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    Resource,
    arguments,
    raised,
)
from controller_runtime.machinery.backoff import exponential
from controller_runtime.machinery.errors import StatusError
from controller_runtime.workqueue import Triggers

T = TypeVar("T", bound=Object)
Queue = handler.Queue

KIND_SOURCE: Final = "kind source: "
_FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0
"""Maximum delay in seconds between two attempts to handle an event."""
MAX_RETRIES: Final = 1024
"""Maximum number of failed events of one source that are kept for a retry."""

When = Callable[[], Awaitable[object]]
FIRST_PRIORITY: Final = workqueue.LOW_PRIORITY // 2
"""Higher than the priority of objects in the first list, and lower than the priority of new events."""
_STEP: Final = 256
"""How many keys are checked before other tasks get a turn."""

NeedsWork = Callable[[NamespacedName], Awaitable[bool]]

_log = log.logger_from("controller-runtime.source")
_Call = Callable[[], Awaitable[None] | None]


class Informers(Protocol):
    """The part of a cache that a source uses."""

    async def get_informer(self, kind: type[T]) -> cache.Informer[T]:
        """Return the informer of ``kind``; the informer starts together with the cache."""


@runtime_checkable
class Discovers(Protocol):
    """Informers that can also discover where a kind is served, without watching it."""

    async def resource_for(self, kind: type[Object]) -> Resource:
        """Return where ``kind`` is served, and whether the kind is namespaced."""


class _FailedCalls:
    """Failed calls of a handler. Each is repeated after a delay, which doubles up to :data:`LONGEST_RETRY`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, _Call]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, call: _Call, failures: int) -> bool:
        """Keep a call for later. If too many calls are kept, drop the call that failed most often and return False."""
        due = anyio.current_time() + exponential(failures - 1, _FIRST_RETRY, LONGEST_RETRY)
        heapq.heappush(self._heap, (due, next(self._numbers), failures, call))
        if len(self._heap) <= MAX_RETRIES:
            return True
        self._heap.remove(max(self._heap, key=itemgetter(2)))
        heapq.heapify(self._heap)
        return False

    def due(self) -> tuple[_Call, int] | None:
        """Remove and return a call that is due, and how often the call has failed; return None if no call is due."""
        if not self._heap or self._heap[0][0] > anyio.current_time():
            return None
        _, _, failures, call = heapq.heappop(self._heap)
        return call, failures

    def wait(self) -> float | None:
        """Return the seconds until the next call is due, or None if no call is kept."""
        return max(0.0, self._heap[0][0] - anyio.current_time()) if self._heap else None


class _Dispatcher(Generic[T]):
    """Passes the events of one source through the predicates to the handler.

    Only UndecodableObjectError is raised to the sender of an event; all other errors of predicates and the handler are
    logged. If the handler fails, the event is retried later. Events that arrive meanwhile may be handled before it.
    """

    def __init__(
        self, name: str, handle: handler.EventHandler[T], predicates: tuple[predicate.Predicate[T], ...]
    ) -> None:
        self._name = name
        self._handler = handle
        methods = (handle.create, handle.update, handle.delete, handle.generic)
        # A subclass of an immediate handler may have replaced a method by a coroutine function.
        self._may_wait = any(map(inspect.iscoroutinefunction, methods))
        self._predicates = predicates
        self._queue: Queue
        self._triggers: Triggers[reconcile.Request] | None = None
        self._calls: deque[_Call] = deque()
        self._retries = _FailedCalls()
        self._busy = False
        self._attempted = anyio.Event()
        # An asyncio.Event can be cleared. A new anyio.Event and scope for each wait would double the cost of an event.
        self._more = asyncio.Event()

    async def prepare(self, informers: Informers) -> None:
        """Let the handler discover other kinds. If the discovery fails, the handler gets its events nevertheless."""
        if isinstance(informers, Discovers):
            try:
                with raised.foreign():
                    await self._handler.prepare(informers.resource_for)
            except (StatusError, rest.RestError):
                pass
            except Exception as error:
                text = "Handler cannot be prepared, it gets events nevertheless"
                _log.error(text, source=self._name, error=error)

    def feed(self, queue: Queue) -> None:
        """Set the queue that the handler gets. This is called before the first event."""
        self._queue = queue
        triggers = getattr(queue, "triggers", None)
        self._triggers = triggers if isinstance(triggers, Triggers) else None

    def on_add(self, obj: LazyObject[T], initial: bool) -> None:
        """Dispatch a creation; objects of the first list have low priority."""
        self._dispatch(
            "create", event.CreateEvent(obj, initial), "listed" if initial else "created", low=initial
        )

    def on_update(self, old: LazyObject[T], new: LazyObject[T]) -> None:
        """Dispatch an update; an update that changes nothing has low priority."""
        same = old.resource_version == new.resource_version
        self._dispatch("update", event.UpdateEvent(old, new), "resynced" if same else "updated", low=same)

    def on_delete(self, obj: LazyObject[T], unknown: bool) -> None:
        """Dispatch a deletion."""
        self._dispatch("delete", event.DeleteEvent(obj, unknown), "deleted")

    async def generic(self, evt: event.GenericEvent[T]) -> None:
        """Handle a generic event before its producer continues."""
        queue = self._queue
        if self._triggers is not None and self._triggers.wanted():
            queue = self._noting(self._triggers, evt, "reported")

        def call() -> Awaitable[None] | None:
            if not self._passes("generic", evt):
                return None
            if not self._handler.immediate:
                self._handler.decode(evt)
            return self._handler.generic(evt, queue)

        await self._attempt(call, 0)

    def _noting(self, triggers: Triggers[reconcile.Request], evt: event.Event[T], change: str) -> Queue:
        """Return a queue that notes the event as the trigger of each request."""
        trigger = f"{self._name.removeprefix(KIND_SOURCE)} {evt.key} {change}"
        return workqueue.WithTrigger(self._queue, triggers, trigger)

    def _dispatch(self, method: str, evt: event.Event[T], change: str, *, low: bool = False) -> None:
        """If the predicates pass an event, call a method of the handler, or decode the event and queue the call.

        ``change`` describes the event in the triggers of requests. With ``low``, the requests have low priority.
        """
        if not self._passes(method, evt):
            return
        queue = self._queue
        if self._triggers is not None and self._triggers.wanted():
            queue = self._noting(self._triggers, evt, change)
        if low:
            queue = workqueue.WithDefaultPriority(queue, workqueue.LOW_PRIORITY)
        call: _Call = partial(getattr(self._handler, method), evt, queue)
        try:
            if self._handler.immediate and not self._may_wait:
                call()
                return
            self._handler.decode(evt)
        except cache.UndecodableObjectError:
            raise  # the informer counts this error
        except raised.FAILURES as error:  # nothing here awaits, so a CancelledError is the handler's own
            self._retry_later(call, 0, error)
            return
        self._calls.append(call)
        self._more.set()

    def _passes(self, method: str, evt: event.Event[T]) -> bool:
        """Return True if the predicates pass the event, or if one of them raises an error.

        An extra event is harmless, but a lost event is not.
        """
        try:
            for predicate_ in self._predicates:
                if not getattr(predicate_, method)(evt):
                    return False
        except cache.UndecodableObjectError:
            raise  # the informer counts this error
        except raised.FAILURES as error:  # nothing here awaits, so a CancelledError is the predicate's own
            _log.error("Predicate failed, so the event passes", source=self._name, error=error)
            raised.release(error)
        return True

    @property
    def pending(self) -> int:
        """The number of calls that wait, for their turn or to be tried again."""
        return len(self._calls) + len(self._retries)

    async def run(self) -> None:
        """Run the queued calls in order, and retry those that failed, until cancelled."""
        number = 0
        while True:
            while (attempt := self._retries.due()) is not None or self._calls:
                call, failures = attempt or (self._calls.popleft(), 0)
                self._busy = True
                await self._attempt(call, failures)
                self._busy = False
                self._attempted.set()
                number += 1
                if number % offload.STEP == 0:
                    await anyio.lowlevel.checkpoint()
            self._more.clear()
            if (delay := self._retries.wait()) is None:
                await self._more.wait()
                continue
            with anyio.move_on_after(delay):
                await self._more.wait()

    async def finish(self) -> None:
        """Return when no call is left to retry."""
        while len(self._retries) or self._busy:
            self._attempted = anyio.Event()
            await self._attempted.wait()

    async def _attempt(self, call: _Call, failures: int) -> None:
        try:
            if (waiting := call()) is not None:
                await waiting
        except raised.FAILURES as error:  # an event that cannot be handled must not end the source
            self._retry_later(call, failures, raised.as_error(error))

    def _retry_later(self, call: _Call, failures: int, error: BaseException) -> None:
        """Try ``call`` again later. Only the first failure of a call is logged as an error; failures of its retries are
        logged for debugging.
        """
        level = _log.debug if failures else _log.error
        level("Event could not be handled, it is tried again", source=self._name, error=error)
        raised.release(error)
        if not self._retries.add(call, failures + 1):
            _log.error("Too many events failed, one is dropped", source=self._name)
        self._more.set()


class Source(ABC):
    """Feeds a queue with requests."""

    @property
    def undelivered(self) -> int:
        """The number of events that wait for a handler, also those that are tried again; 0 if the source keeps none."""
        return 0

    @abstractmethod
    async def start(self, queue: Queue) -> None:
        """Feed ``queue`` until cancelled, or until the source is exhausted."""


class SyncingSource(Source):
    """A source that first delivers the existing objects, and then changes."""

    @abstractmethod
    async def warm_up(self) -> None:
        """Begin to list and cache the existing objects, for a later :meth:`start`; deliver nothing yet."""

    @abstractmethod
    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Return when the source has started, and the existing objects are in the cache or cannot be listed.

        If :meth:`warm_up` was called before, this method may return before the events of these objects are delivered.

        Raises:
            CacheSyncTimeoutError: ``timeout`` seconds have passed.
        """

    @property
    @abstractmethod
    def problem(self) -> str | None:
        """Why the source delivers no events; None if it does."""


class Kind(SyncingSource, Generic[T]):
    """Delivers the events of a kind from a cache. When the source starts, the cache watches the kind."""

    def __init__(
        self,
        informers: Informers,
        kind: type[T],
        handle: handler.EventHandler[T],
        *predicates: predicate.Predicate[T],
    ) -> None:
        self._informers = informers
        self._kind = kind
        self._dispatcher = _Dispatcher(str(self), handle, predicates)
        self._informer: cache.Informer[T] | None = None
        self._started = anyio.Event()

    def __str__(self) -> str:
        metadata = " (metadata)" if issubclass(self._kind, PartialObjectMetadata) else ""
        return f"{KIND_SOURCE}{self._kind.gvk.group_kind}{metadata}"

    @property
    def problem(self) -> str | None:
        """Why this kind cannot be listed or watched; None if it can."""
        return self._informer.problem if self._informer is not None else None

    @property
    def undelivered(self) -> int:
        """The number of events that wait for the handler."""
        return self._dispatcher.pending

    async def warm_up(self) -> None:
        """Watch the kind. Events start with :meth:`start`, which reports every existing object."""
        self._informer = await self._informers.get_informer(self._kind)

    async def start(self, queue: Queue) -> None:
        """Deliver events until cancelled."""
        self._informer = await self._informers.get_informer(self._kind)
        dispatcher = self._dispatcher
        await dispatcher.prepare(self._informers)
        dispatcher.feed(queue)
        handlers = cache.LazyHandlerFuncs(dispatcher.on_add, dispatcher.on_update, dispatcher.on_delete)
        registration = self._informer.add_event_handler(handlers)
        self._started.set()
        try:
            await dispatcher.run()
        finally:
            registration.remove()

    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Return when the kind has been listed, or cannot be listed."""
        deadline = None if timeout is None else anyio.current_time() + timeout
        with anyio.move_on_after(timeout):
            await self._started.wait()
        if self._informer is None:
            raise cache.CacheSyncTimeoutError(f"{self}: not started within {timeout:g} s")
        left = None if deadline is None else max(0.0, deadline - anyio.current_time())
        await self._informer.wait_for_sync(left, or_problem=True)


class Deferred(Source):
    """Starts ``src`` when ``when`` has returned. The controller does not wait for the first events of ``src``."""

    def __init__(self, src: Source, when: When) -> None:
        self._source = src
        self._when = when

    def __str__(self) -> str:
        return f"{self._source}, when needed"

    @property
    def undelivered(self) -> int:
        """The number of events that wait for the handler of the source that this one starts."""
        return self._source.undelivered

    async def start(self, queue: Queue) -> None:
        """Wait, then start the source."""
        await self._when()
        await self._source.start(queue)


class Prioritized(Source):
    """Moves objects of ``kind`` that need work to the front of the queue, one time, as soon as all kinds are listed.

    When a controller starts, every object of a kind is added to the queue, in the order of the list. After an outage,
    the few objects that need work would wait behind all others. ``needs_work`` gets the synced informers of ``kind``
    and of ``others``, and returns a function that checks one key. That function should decode as little as possible. If
    one of the kinds cannot be listed, nothing is moved.
    """

    def __init__(
        self,
        informers: Informers,
        kind: type[Object],
        needs_work: Callable[..., NeedsWork],
        *others: type[Object],
        name: str = "",
    ) -> None:
        self._informers = informers
        self._kinds = (kind, *others)
        self._needs_work = needs_work
        self._name = name or f"{kind.gvk.group_kind} that needs work"

    def __str__(self) -> str:
        return self._name

    async def start(self, queue: Queue) -> None:
        """Add the keys of objects that need work, with the priority :data:`FIRST_PRIORITY`; an error is only logged."""
        try:
            with raised.foreign():
                await self._move_to_front(queue)
        except Exception as error:
            text = "Objects that need work are not moved to the front"
            _log.error(text, source=self._name, error=error)

    async def _move_to_front(self, queue: Queue) -> None:
        informers: list[cache.Informer[Any]] = [
            await self._informers.get_informer(kind) for kind in self._kinds
        ]
        for informer in informers:
            await informer.wait_for_sync(or_problem=True)
        if not all(informer.has_synced for informer in informers):
            return
        needs_work = self._needs_work(*informers)
        for number, key in enumerate(informers[0].keys(), 1):
            if await needs_work(key):
                queue.add(reconcile.Request(*key), priority=FIRST_PRIORITY)
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()


class Channel(Source, Generic[T]):
    """Events from a stream; the source ends when the stream ends."""

    def __init__(
        self,
        stream: AsyncIterable[event.GenericEvent[T]],
        handle: handler.EventHandler[T],
        *predicates: predicate.Predicate[T],
    ) -> None:
        self._stream = stream
        self._dispatcher = _Dispatcher(str(self), handle, predicates)

    def __str__(self) -> str:
        return "channel source"

    @property
    def undelivered(self) -> int:
        """The number of events that wait for the handler."""
        return self._dispatcher.pending

    async def start(self, queue: Queue) -> None:
        """Handle one event after another; read the next from the stream when the previous one has been handled."""
        self._dispatcher.feed(queue)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._dispatcher.run)
            async for evt in self._stream:
                await self._dispatcher.generic(evt)
            await self._dispatcher.finish()
            tasks.cancel_scope.cancel()


class Func(Source):
    """A function that feeds the queue for as long as it runs."""

    def __init__(self, fn: Callable[[Queue], Awaitable[None]], name: str = "") -> None:
        """Make a source of ``fn``; logs show ``name``. Raises TypeError if ``fn`` is not ``async``."""
        arguments.must_be_async(fn)
        arguments.must_take(fn, "queue")
        self._fn = fn
        self._name = name

    def __str__(self) -> str:
        return self._name or f"func source: {getattr(self._fn, '__qualname__', self._fn)}"

    async def start(self, queue: Queue) -> None:
        """Call the function."""
        await self._fn(queue)
