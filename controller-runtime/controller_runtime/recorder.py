# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Core/v1 events about objects, with times and counts. ``kubectl describe`` and the SDK read such events.

Recording an event never waits: the event is queued, and the broadcaster sends it later. If the API server is so slow
that the queue is full, events are dropped. This is logged, and reconciling continues.

The :class:`Correlator` raises the count of an earlier event, combines an event with similar ones, or drops it. The
rules and figures are client-go's, so a cluster sees as many events from this process as from a Go process. A repeated
event raises the count of the first one. Events that differ only in their messages are combined into one event from the
tenth on, until no such event comes for ten minutes. A source may send 25 events of one type about an object at once,
and after that one every five minutes.
"""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import anyio
import msgspec

from controller_runtime import log
from controller_runtime.apis.core.events import Event, EventSource, ObjectReference
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import MERGE, Writer, raw_patch
from controller_runtime.machinery import Object, raised
from controller_runtime.machinery.errors import (
    AlreadyExistsError,
    ForbiddenError,
    NotFoundError,
    StatusError,
)
from controller_runtime.machinery.lru import LRU
from controller_runtime.machinery.meta import format_time
from controller_runtime.machinery.object import check_object
from controller_runtime.machinery.tokenbucket import TokenBucket
from controller_runtime.rest import TransportError

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MAX_RECORDS: Final = 4096
"""Maximum number of remembered events. The repetition of a forgotten event becomes a second Event."""
AGGREGATE_FROM: Final = 10
AGGREGATE_INTERVAL: Final = 600.0
SPAM_BURST: Final = 25
SPAM_QPS: Final = 1 / 300
COMBINED_PREFIX: Final = "(combined from similar events): "

Key = tuple[str | None, ...]

_TRIES: Final = 12
_RETRY_DELAY: Final = 10.0
_CALL_DEADLINE: Final = 10.0
_DEFAULT_NAMESPACE: Final = "default"

_log = log.logger_from("events")


class EventRecorder(Protocol):
    """Records events: the part of :class:`SourceRecorder` that controllers use."""

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        """Queue an event about ``obj``, which must have a name; ``event_type`` is Normal or Warning.

        Raises:
            ValueError: ``event_type`` is neither Normal nor Warning.
        """


class SourceRecorder(EventRecorder):
    """Records events of one source with a broadcaster."""

    def __init__(self, broadcaster: Broadcaster, source: str) -> None:
        self._broadcaster = broadcaster
        self._source = source

    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        if event_type not in {NORMAL, WARNING}:
            raise ValueError(f"event type {event_type!r} must be {NORMAL} or {WARNING}")
        self._broadcaster.enqueue(self._source, obj, event_type, reason, message)

    def event_once(self, obj: Object, event_type: str, reason: str, message: str, *, key: str = "") -> None:
        """Record an event like :meth:`EventRecorder.event`, but only once for each ``obj``, ``reason`` and ``key``.

        The event's name is derived from these three and the source. So the API server rejects a second event, even
        after a restart of this process. If the same process records the same message again, this raises the count. If
        the event has expired, it is recorded again.

        Raises:
            ValueError: ``event_type`` is neither Normal nor Warning.
        """
        if event_type not in {NORMAL, WARNING}:
            raise ValueError(f"event type {event_type!r} must be {NORMAL} or {WARNING}")
        identity = "\0".join((self._source, obj.kind or "", obj.metadata.uid or "", obj.name, reason, key))
        name = f"{obj.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        self._broadcaster.enqueue(self._source, obj, event_type, reason, message, name=name)

    def eventf(self, obj: Object, event_type: str, reason: str, template: str, *args: object) -> None:
        """Queue an event as :meth:`EventRecorder.event` does, with the message ``template % args``."""
        self.event(obj, event_type, reason, template % args if args else template)


class Broadcaster:
    """The runnable that sends recorded events; when it is stopped, it first sends the queued events.

    ``writer`` is called from one task, one call at a time. The writer's requests must not delay the requests of
    reconcilers.
    """

    name = "event broadcaster"

    def __init__(
        self,
        writer: Writer,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        capacity: int = 1000,
        flush: float = 5.0,
    ) -> None:
        self._writer = writer
        self._now = now
        self._rng = rng
        self._capacity = capacity
        self._flush = flush
        self._queue: deque[Event] = deque()
        self._queued = anyio.Event()
        self._lost = 0
        self._serial = 0
        self._pending: CorrelateResult | None = None
        self._correlator = Correlator(anyio.current_time, self._new_name)
        self._observers: list[Callable[[Event], None]] = []

    def on_sent(self, observe: Callable[[Event], None]) -> None:
        """Call ``observe`` with each event that was sent, was refused, or was given up."""
        self._observers.append(observe)

    def recorder_for(self, source: str) -> SourceRecorder:
        """Return a recorder with ``source`` as the component of its events."""
        return SourceRecorder(self, source)

    def enqueue(
        self, source: str, obj: Object, event_type: str, reason: str, message: str, *, name: str = ""
    ) -> None:
        """Queue an event, or drop it if the queue is full. Without ``name``, the event gets a unique name."""
        if len(self._queue) >= self._capacity:
            self._lost += 1
            if self._lost == 1:
                _log.warning("Events are lost because too many are queued", capacity=self._capacity)
            return
        if self._lost:
            _log.warning("Events were lost because too many were queued", lost=self._lost)
            self._lost = 0
        event = self._make(source, obj, event_type, reason, message)
        if name:
            event.metadata.name = name
        self._queue.append(event)
        self._queued.set()

    def need_leader_election(self) -> bool:
        """Return False: followers record events, too."""
        return False

    async def start(self) -> None:
        """Send events until cancelled. Then send the queued events, for up to ``flush`` seconds."""
        try:
            while True:
                if not self._queue:
                    self._queued = anyio.Event()
                    await self._queued.wait()
                await self._send_next()
        finally:
            with anyio.move_on_after(self._flush, shield=True):
                while self._queue or self._pending:
                    await self._send_next()
            if lost := len(self._queue) + (self._pending is not None):
                _log.warning("Events were lost at the stop", lost=lost)

    def _make(self, source: str, obj: Object, event_type: str, reason: str, message: str) -> Event:
        now = format_time(self._now())
        return Event(
            metadata=ObjectMeta(name=self._new_name(obj.name), namespace=obj.namespace or _DEFAULT_NAMESPACE),
            involved_object=reference(obj),
            reason=reason,
            message=message,
            source=EventSource(component=source),
            first_timestamp=now,
            last_timestamp=now,
            count=1,
            type=event_type,
            reporting_component=source,
            reporting_instance="",
        )

    def _new_name(self, about: str) -> str:
        # Nanoseconds in base 16, as client-go names events; the time makes the name unique.
        moment = self._now()
        self._serial = (self._serial + 1) % 1000
        return f"{about}.{int(moment.timestamp()) * 10**9 + moment.microsecond * 1000 + self._serial:x}"

    async def _send_next(self) -> None:
        # Each event is correlated once. If sending the event is cancelled, the result of the correlation stays pending.
        if self._pending is None:
            self._pending = self._correlator.correlate(self._queue.popleft())
        if self._pending is not None:
            await self._send(self._pending)
            event, self._pending = self._pending.event, None
            for observe in self._observers:
                observe(event)

    async def _send(self, result: CorrelateResult) -> None:
        for attempt in range(_TRIES):
            try:
                with anyio.fail_after(_CALL_DEADLINE), raised.foreign():
                    await self._record(result)
            except AlreadyExistsError:
                return  # an earlier try was stored although its answer was lost
            except StatusError as error:
                self._correlator.forget(result.key)
                if not (isinstance(error, ForbiddenError) and error.has_cause("NamespaceTerminating")):
                    _log.error("Event was refused", about=_summary(result.event), error=error)
                return
            except (TransportError, TimeoutError) as error:
                _log.debug("Event was not sent, trying again", about=_summary(result.event), error=error)
            except Exception as error:
                # The event cannot be written as JSON, its object's name does not fit into a URL, or the writer has a
                # bug. A retry would not help, and the other events must not be lost.
                self._correlator.forget(result.key)
                _log.error("Event cannot be sent", about=_summary(result.event), error=error)
                return
            else:
                return
            # Many processes may have lost the same server: they must not all retry at the same time.
            await anyio.sleep(_RETRY_DELAY * (self._rng() if attempt == 0 else 1.0))
        self._correlator.forget(result.key)
        _log.error("Event was given up", about=_summary(result.event), tries=_TRIES)

    async def _record(self, result: CorrelateResult) -> None:
        event = result.event
        if not result.known:
            stored = await self._writer.create(event)
        else:
            patch = {"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}
            try:
                stored = await self._writer.patch(event, raw_patch(MERGE, msgspec.json.encode(patch)))
            except NotFoundError:
                # Events expire after an hour, so the stored event may have been deleted.
                about = event.involved_object.name if event.involved_object else None
                event.metadata = ObjectMeta(name=self._new_name(about or ""), namespace=event.namespace)
                stored = await self._writer.create(event)
        self._correlator.store(result.key, stored)


def reference(obj: Object) -> ObjectReference:
    """Return the reference to ``obj``, e.g. for the ``involvedObject`` of an event or a field in a status.

    If the object has no ``apiVersion`` and ``kind``, the reference has those of its class.
    """
    check_object(obj)
    meta, gvk = obj.metadata, type(obj).gvk
    return ObjectReference(
        kind=obj.kind or gvk.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=obj.api_version or gvk.api_version,
        resource_version=meta.resource_version,
    )


def _summary(event: Event) -> dict[str, str | None]:
    about = event.involved_object
    return {
        "kind": about.kind if about else None,
        "namespace": event.namespace,
        "name": about.name if about else None,
        "reason": event.reason,
    }


class CorrelateResult(msgspec.Struct):
    """An event to send: ``event`` is either new, or the stored event of the same name with a higher count."""

    event: Event
    key: Key
    known: bool
    """If True, patch count, lastTimestamp and message of the stored event. If False, create a new event."""


class _Group(msgspec.Struct):
    last: float
    messages: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)


class _Seen(msgspec.Struct):
    name: str
    first_timestamp: str | None
    count: int


class Correlator:
    """Correlates events in the order of their arrival. ``clock`` is monotonic; ``new_name`` names combined events."""

    def __init__(self, clock: Callable[[], float], new_name: Callable[[str], str]) -> None:
        self._clock = clock
        self._new_name = new_name
        self._groups: LRU[Key, _Group] = LRU(MAX_RECORDS)
        self._seen: LRU[Key, _Seen] = LRU(MAX_RECORDS)
        self._buckets: LRU[Key, TokenBucket] = LRU(MAX_RECORDS)

    def correlate(self, event: Event) -> CorrelateResult | None:
        """Return the event to send for ``event``, or None if its source has sent too many such events."""
        event, key = self._combine(event)
        known = self._seen.use(key)
        if known is not None:
            event.metadata.name = known.name
            event.first_timestamp = known.first_timestamp
            event.count = known.count + 1
        self.store(key, event)
        bucket_key = (_component(event), *_involved(event), event.type)
        bucket = self._buckets.get(bucket_key) or TokenBucket(SPAM_QPS, SPAM_BURST, self._clock)
        self._buckets[bucket_key] = bucket
        if not bucket.try_take():
            return None
        return CorrelateResult(event, key, known is not None)

    def store(self, key: Key, event: Event) -> None:
        """Remember ``event`` as the stored event of ``key``."""
        self._seen[key] = _Seen(event.name, event.first_timestamp, event.count or 1)

    def forget(self, key: Key) -> None:
        """Forget the event of ``key`` because it was not stored, so that the next event of ``key`` is created."""
        self._seen.pop(key, None)

    def _combine(self, event: Event) -> tuple[Event, Key]:
        """Return the event to count and its key: the event itself, or the combined event of its group."""
        group_key = (_component(event), *_involved(event), event.type, event.reason)
        now = self._clock()
        group = self._groups.get(group_key)
        if group is None or now - group.last > AGGREGATE_INTERVAL:
            group = _Group(now)
        message = event.message or ""
        group.messages[message] = None
        group.last = now
        self._groups[group_key] = group
        if len(group.messages) < AGGREGATE_FROM:
            return event, (*group_key, message)
        group.messages.popitem(last=False)
        combined = event.deep_copy()
        combined.metadata.name = self._new_name(_involved(event)[2] or "")
        combined.message = COMBINED_PREFIX + message
        return combined, group_key


def _component(event: Event) -> str | None:
    return event.source.component if event.source is not None else None


def _involved(event: Event) -> tuple[str | None, ...]:
    ref = event.involved_object
    if ref is None:
        return (None, None, None, None, None)
    return (ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version)
