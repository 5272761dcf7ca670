# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of sources; :mod:`.pipe` takes their events to handlers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from controller_runtime import cache, event, handler, log, predicate, reconcile, workqueue
from controller_runtime.machinery import NamespacedName, Object, PartialObjectMetadata, cancellation

from .pipe import KIND_SOURCE, Informers, Pipe, Queue

T = TypeVar("T", bound=Object)
When = Callable[[], Awaitable[object]]
EXPEDITED: Final = workqueue.LOW_PRIORITY // 2
"""Above the objects of the first list, and below new events."""
_STEP: Final = 256
"""Keys looked at before other tasks may run."""

_log = log.logger_from("controller-runtime.source")
NeedsWork = Callable[[NamespacedName], Awaitable[bool]]


class Source(ABC):
    """Gives events to a queue."""

    @abstractmethod
    async def start(self, queue: Queue) -> None:
        """Feed ``queue`` until cancelled, or until the source is exhausted."""


class SyncingSource(Source):
    """A source that starts with the existing objects."""

    @abstractmethod
    async def warm_up(self) -> None:
        """List and cache the existing objects, so that a later :meth:`start` need not wait; deliver nothing yet."""

    @abstractmethod
    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Return when the started source has delivered the existing objects, or cannot list them.

        Raises:
            CacheSyncTimeoutError: that took too long.
        """

    @property
    @abstractmethod
    def problem(self) -> str | None:
        """Why the source delivers no events, while it does not."""


class Kind(SyncingSource, Generic[T]):
    """The events of a kind in a cache; starting it makes the cache watch the kind."""

    def __init__(
        self,
        informers: Informers,
        kind: type[T],
        handle: handler.EventHandler[T],
        *predicates: predicate.Predicate[T],
    ) -> None:
        self._informers = informers
        self._kind = kind
        self._pipe = Pipe(str(self), handle, predicates)
        self._informer: cache.Informer[T] | None = None
        self._started = anyio.Event()

    def __str__(self) -> str:
        metadata = " (metadata)" if issubclass(self._kind, PartialObjectMetadata) else ""
        return f"{KIND_SOURCE}{self._kind.gvk.group_kind}{metadata}"

    @property
    def problem(self) -> str | None:
        """Why the server refuses this kind, while it does."""
        return self._informer.problem if self._informer is not None else None

    async def warm_up(self) -> None:
        """Watch the kind. Events start with :meth:`start`, which reports every existing object."""
        self._informer = await self._informers.get_informer(self._kind)

    async def start(self, queue: Queue) -> None:
        """Listen until cancelled."""
        self._informer = await self._informers.get_informer(self._kind)
        pipe = self._pipe
        await pipe.prepare(self._informers)
        registration = self._informer.add_event_handler(
            cache.LazyHandlerFuncs(
                on_add=lambda obj, initial: pipe.create(event.CreateEvent(obj, initial), queue),
                on_update=lambda old, new: pipe.update(event.UpdateEvent(old, new), queue),
                on_delete=lambda obj, unknown: pipe.delete(event.DeleteEvent(obj, unknown), queue),
            )
        )
        self._started.set()
        try:
            await pipe.run()
        finally:
            registration.remove()

    async def wait_for_sync(self, timeout: float | None = None) -> None:
        """Return when the kind has been listed, or when the server refuses it."""
        deadline = None if timeout is None else anyio.current_time() + timeout
        with anyio.move_on_after(timeout):
            await self._started.wait()
        if self._informer is None:
            raise cache.CacheSyncTimeoutError(f"{self}: not started within {timeout:g} s")
        left = None if deadline is None else max(0.0, deadline - anyio.current_time())
        await self._informer.wait_for_sync(left, or_problem=True)


class Deferred(Source):
    """A source that starts once ``when`` returns; the controller does not wait for its first events."""

    def __init__(self, src: Source, when: When) -> None:
        self._source = src
        self._when = when

    def __str__(self) -> str:
        return f"{self._source}, when needed"

    async def start(self, queue: Queue) -> None:
        """Wait, then start the source."""
        await self._when()
        await self._source.start(queue)


class Expedited(Source):
    """Moves listed objects that need work to the front of the queue, once, when every kind named is listed.

    A start adds every object of a kind to the queue, in the order of the list. After an outage, the few that changed
    meanwhile would wait for all others. ``needs_work`` gets the informers of ``kind`` and of ``others``, listed, and
    returns a check of one key; it should decode as little as it can. Nothing is moved if a kind cannot be listed.
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
        """Add the keys of objects that need work, with the priority :data:`EXPEDITED`. An error ends only that."""
        try:
            await self._expedite(queue)
        except cancellation.FAILURES as error:
            text = "Objects that need work are not moved to the front"
            _log.error(text, source=self._name, error=cancellation.as_error(error))

    async def _expedite(self, queue: Queue) -> None:
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
                queue.add(reconcile.Request(*key), priority=EXPEDITED)
            if number % _STEP == 0:
                await anyio.lowlevel.checkpoint()


class Channel(Source, Generic[T]):
    """Events from a stream; the source ends with it."""

    def __init__(
        self,
        stream: AsyncIterable[event.GenericEvent[T]],
        handle: handler.EventHandler[T],
        *predicates: predicate.Predicate[T],
    ) -> None:
        self._stream = stream
        self._pipe = Pipe(str(self), handle, predicates)

    def __str__(self) -> str:
        return "channel source"

    async def start(self, queue: Queue) -> None:
        """Handle event after event; the stream is read no faster than that."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pipe.run)
            async for evt in self._stream:
                await self._pipe.generic(evt, queue)
            await self._pipe.finish()
            tasks.cancel_scope.cancel()


class Func(Source):
    """A function that feeds the queue for as long as it runs."""

    def __init__(self, fn: Callable[[Queue], Awaitable[None]]) -> None:
        self._fn = fn

    def __str__(self) -> str:
        return f"func source: {getattr(self._fn, '__qualname__', self._fn)}"

    async def start(self, queue: Queue) -> None:
        """Call the function."""
        await self._fn(queue)
