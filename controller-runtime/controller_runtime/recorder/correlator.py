# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Correlation of repeated events: an event raises the count of an earlier event, is combined with similar events, or is
dropped.

The rules and figures are client-go's, so a cluster sees as many events from this process as from a Go process. A
repeated event raises the count of the first one. Events that differ only in their messages are combined into one event
from the tenth on, until no such event comes for ten minutes. A source may send 25 events of one type about an object at
once, and after that one every five minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from controller_runtime.apis.core.events import Event
from controller_runtime.machinery.tokenbucket import TokenBucket

MAX_RECORDS: Final = 4096
"""Maximum number of remembered events. The repetition of a forgotten event becomes a second Event."""
AGGREGATE_FROM: Final = 10
AGGREGATE_INTERVAL: Final = 600.0
SPAM_BURST: Final = 25
SPAM_QPS: Final = 1 / 300
COMBINED_PREFIX: Final = "(combined from similar events): "

Key = tuple[str | None, ...]
V = TypeVar("V")


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


class _LRU(Generic[V]):
    """The most recently used values, at most :data:`MAX_RECORDS`."""

    def __init__(self) -> None:
        self._values: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > MAX_RECORDS:
            self._values.popitem(last=False)

    def drop(self, key: Key) -> None:
        self._values.pop(key, None)


class Correlator:
    """Correlates events in the order of their arrival. ``clock`` is monotonic; ``new_name`` names combined events."""

    def __init__(self, clock: Callable[[], float], new_name: Callable[[str], str]) -> None:
        self._clock = clock
        self._new_name = new_name
        self._groups: _LRU[_Group] = _LRU()
        self._seen: _LRU[_Seen] = _LRU()
        self._buckets: _LRU[TokenBucket] = _LRU()

    def correlate(self, event: Event) -> CorrelateResult | None:
        """Return the event to send for ``event``, or None if its source has sent too many such events."""
        event, key = self._combine(event)
        known = self._seen.get(key)
        if known is not None:
            event.metadata.name = known.name
            event.first_timestamp = known.first_timestamp
            event.count = known.count + 1
        self.store(key, event)
        if not self._may_speak(event):
            return None
        return CorrelateResult(event, key, known is not None)

    def store(self, key: Key, event: Event) -> None:
        """Remember ``event`` as the stored event of ``key``."""
        self._seen.put(key, _Seen(event.name, event.first_timestamp, event.count or 1))

    def forget(self, key: Key) -> None:
        """Forget the event of ``key`` because it was not stored, so that the next event of ``key`` is created."""
        self._seen.drop(key)

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
        self._groups.put(group_key, group)
        if len(group.messages) < AGGREGATE_FROM:
            return event, (*group_key, message)
        group.messages.popitem(last=False)
        combined = event.deep_copy()
        combined.metadata.name = self._new_name(_involved(event)[2] or "")
        combined.message = COMBINED_PREFIX + message
        return combined, group_key

    def _may_speak(self, event: Event) -> bool:
        key = (_component(event), *_involved(event), event.type)
        bucket = self._buckets.get(key) or TokenBucket(SPAM_QPS, SPAM_BURST, self._clock)
        self._buckets.put(key, bucket)
        return bucket.try_take()


def _component(event: Event) -> str | None:
    return event.source.component if event.source is not None else None


def _involved(event: Event) -> tuple[str | None, ...]:
    ref = event.involved_object
    if ref is None:
        return (None, None, None, None, None)
    return (ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version)
