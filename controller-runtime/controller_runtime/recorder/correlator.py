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
from typing import Final

import msgspec

from controller_runtime.apis.core.events import Event
from controller_runtime.machinery.lru import LRU
from controller_runtime.machinery.tokenbucket import TokenBucket

MAX_RECORDS: Final = 4096
"""Maximum number of remembered events. The repetition of a forgotten event becomes a second Event."""
AGGREGATE_FROM: Final = 10
AGGREGATE_INTERVAL: Final = 600.0
SPAM_BURST: Final = 25
SPAM_QPS: Final = 1 / 300
COMBINED_PREFIX: Final = "(combined from similar events): "

Key = tuple[str | None, ...]


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
        if not self._may_speak(event):
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

    def _may_speak(self, event: Event) -> bool:
        key = (_component(event), *_involved(event), event.type)
        bucket = self._buckets.get(key) or TokenBucket(SPAM_QPS, SPAM_BURST, self._clock)
        self._buckets[key] = bucket
        return bucket.try_take()


def _component(event: Event) -> str | None:
    return event.source.component if event.source is not None else None


def _involved(event: Event) -> tuple[str | None, ...]:
    ref = event.involved_object
    if ref is None:
        return (None, None, None, None, None)
    return (ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version)
