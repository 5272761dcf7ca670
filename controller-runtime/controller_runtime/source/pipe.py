# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The way of an event from a source to its handler: predicates, steps in order, and retries of failed steps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

import anyio

from controller_runtime import cache, event, handler, log, predicate, rest, workqueue
from controller_runtime.log import Written
from controller_runtime.machinery import NamespacedName, Object, Resource, cancellation
from controller_runtime.machinery.errors import StatusError
from controller_runtime.workqueue import Origins

T = TypeVar("T", bound=Object)
Queue = handler.Queue

KIND_SOURCE: Final = "kind source: "
_FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0
"""Seconds between two tries, at most, to handle an event."""
MAX_RETRIES: Final = 1024
"""Failed events of one source that are kept."""

_log = log.logger_from("controller-runtime.source")
_Step = Callable[[], Coroutine[object, None, None]]
E = TypeVar(
    "E", event.CreateEvent[Any], event.UpdateEvent[Any], event.DeleteEvent[Any], event.GenericEvent[Any]
)


class Informers(Protocol):
    """The part of a cache that a source uses."""

    async def get_informer(self, kind: type[T]) -> cache.Informer[T]:
        """Return the informer of ``kind``, which starts with the cache."""
        ...


@runtime_checkable
class Discovers(Protocol):
    """Informers that also discover kinds that are not watched."""

    async def resource_for(self, kind: type[Object]) -> Resource:
        """Return where ``kind`` is served, and whether it has namespaces."""
        ...


class _Retries:
    """Steps that failed, each due again after a delay that doubles up to :data:`LONGEST_RETRY`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, _Step]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, step: _Step, failures: int) -> bool:
        """Keep a step for later; return False if another, the one that failed most often, had to go for it."""
        due = anyio.current_time() + min(_FIRST_RETRY * 2.0 ** min(failures - 1, 16), LONGEST_RETRY)
        heapq.heappush(self._heap, (due, next(self._numbers), failures, step))
        if len(self._heap) <= MAX_RETRIES:
            return True
        self._heap.remove(max(self._heap, key=itemgetter(2)))
        heapq.heapify(self._heap)
        return False

    def due(self) -> tuple[_Step, int] | None:
        """Take the next step that is due, and how often it has failed."""
        if not self._heap or self._heap[0][0] > anyio.current_time():
            return None
        _, _, failures, step = heapq.heappop(self._heap)
        return step, failures

    def wait(self) -> float | None:
        """Return the seconds until the next step is due, or None without steps."""
        return max(0.0, self._heap[0][0] - anyio.current_time()) if self._heap else None


class Pipe(Generic[T]):
    """Predicates, then the handler. Their errors do not reach the sender of the event.

    An event whose handler failed is retried later, after events that arrived meanwhile.
    """

    def __init__(
        self, name: str, handle: handler.EventHandler[T], predicates: tuple[predicate.Predicate[T], ...]
    ) -> None:
        self._name = name
        self._handler = handle
        self._predicate = predicate.and_(*predicates)
        self._steps: deque[_Step] = deque()
        self._retries = _Retries()
        self._busy = False
        self._taken = anyio.Event()
        # One that can be cleared: an event and a scope for each wait cost as much as handling an event.
        self._more = asyncio.Event()

    async def prepare(self, informers: Informers) -> None:
        """Let the handler discover other kinds; if that fails, its first events wait for the discovery."""
        if isinstance(informers, Discovers):
            try:
                await self._handler.prepare(informers.resource_for)
            except (StatusError, rest.RestError):
                pass
            except cancellation.FAILURES as error:
                text = "Handler cannot be prepared, it gets events nevertheless"
                _log.error(text, source=self._name, error=cancellation.as_error(error))

    def create(self, evt: event.CreateEvent[T], queue: Queue) -> None:
        """Pass on a creation; objects of the first list have low priority."""
        if Written.up_to >= Origins.kept_from:
            queue = self._noting(queue, "listed" if evt.is_in_initial_list else "created", evt.key)
        if evt.is_in_initial_list:
            queue = workqueue.DefaultPriority(queue, workqueue.LOW_PRIORITY)
        self._pass(evt, self._predicate.create, partial(self._handler.create, evt, queue))

    def update(self, evt: event.UpdateEvent[T], queue: Queue) -> None:
        """Pass on a change; one that changes nothing has low priority."""
        if Written.up_to >= Origins.kept_from:
            queue = self._noting(queue, "updated" if evt.changed else "resynced", evt.key)
        if not evt.changed:
            queue = workqueue.DefaultPriority(queue, workqueue.LOW_PRIORITY)
        self._pass(evt, self._predicate.update, partial(self._handler.update, evt, queue))

    def delete(self, evt: event.DeleteEvent[T], queue: Queue) -> None:
        """Pass on a deletion."""
        if Written.up_to >= Origins.kept_from:
            queue = self._noting(queue, "deleted", evt.key)
        self._pass(evt, self._predicate.delete, partial(self._handler.delete, evt, queue))

    async def generic(self, evt: event.GenericEvent[T], queue: Queue) -> None:
        """Handle a generic event before its producer continues."""
        if Written.up_to >= Origins.kept_from:
            queue = self._noting(queue, "reported", evt.key)
        await self._take(partial(self._generic, evt, queue), 0)

    async def _generic(self, evt: event.GenericEvent[T], queue: Queue) -> None:
        if self._passes(evt, self._predicate.generic):
            await self._handler.generic(evt, queue)

    def _noting(self, queue: Queue, change: str, key: NamespacedName) -> Queue:
        """Return ``queue`` with a note of the event for each request, if it keeps notes."""
        origins = getattr(queue, "origins", None)
        if not isinstance(origins, Origins):
            return queue
        return workqueue.Noting(queue, origins, f"{self._name.removeprefix(KIND_SOURCE)} {key} {change}")

    async def run(self) -> None:
        """Run the queued steps in order, and retry those that failed, until cancelled."""
        while True:
            while (attempt := self._retries.due()) is not None or self._steps:
                step, failures = attempt or (self._steps.popleft(), 0)
                self._busy = True
                await self._take(step, failures)
                self._busy = False
                self._taken.set()
            self._more.clear()
            if (delay := self._retries.wait()) is None:
                await self._more.wait()
                continue
            with anyio.move_on_after(delay):
                await self._more.wait()

    async def finish(self) -> None:
        """Return when no step is left to retry."""
        while len(self._retries) or self._busy:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def _take(self, step: _Step, failures: int) -> None:
        try:
            await step()
        except cancellation.FAILURES as error:  # an event that cannot be handled must not end the source
            self._failed(step, failures, cancellation.as_error(error))

    def _pass(self, evt: E, passes: Callable[[E], bool], step: _Step) -> None:
        if not self._passes(evt, passes):
            return
        if self._handler.immediate:
            self._take_now(step)
        else:
            self._steps.append(step)
            self._more.set()

    def _passes(self, evt: E, passes: Callable[[E], bool]) -> bool:
        """Return the predicates' verdict; True if they fail: an event too many is harmless, a lost one is not."""
        try:
            if not passes(evt):
                return False
            if not self._handler.immediate:
                self._handler.look(evt)
        except cache.UndecodableObjectError:
            raise  # the informer counts it
        except cancellation.FAILURES as error:  # nothing here waits to be cancelled
            _log.error("Predicate failed, so the event passes", source=self._name, error=error)
        return True

    def _take_now(self, step: _Step) -> None:
        try:
            _finish(step())
        except cache.UndecodableObjectError:
            raise  # as above
        except cancellation.FAILURES as error:  # as above
            self._failed(step, 0, error)

    def _failed(self, step: _Step, failures: int, error: BaseException) -> None:
        """Try ``step`` again later. The first failure is logged as an error, which may well be the last."""
        level = _log.debug if failures else _log.error
        level("Event could not be handled, it is tried again", source=self._name, error=error)
        if not self._retries.add(step, failures + 1):
            _log.error("Too many events failed, one is dropped", source=self._name)
        self._more.set()


def _finish(step: Coroutine[object, None, None]) -> None:
    """Run a coroutine that never waits."""
    try:
        step.send(None)
    except StopIteration:
        return
    step.close()
    raise RuntimeError("a handler that calls itself immediate waited")
