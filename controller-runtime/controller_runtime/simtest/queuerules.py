# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for waiting work: a delayed request becomes ready at its time, and a worker takes a ready request at once.

The retries of other requests, or the next event, would hide that a request was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from controller_runtime import source
from controller_runtime.controller import Controller

_LATE: Final = 1.0
"""A request may become ready this many seconds after its time."""


def forgotten(controller: Controller) -> Iterator[str]:
    """Yield a description of each request that should not wait any more.

    Call it twice, some seconds apart: only descriptions that both calls yield are problems, because a worker or a timer
    may be about to act.
    """
    queue = controller.queue
    if queue.shutting_down:
        return
    now = queue._clock()
    for entry in queue._entries.values():
        if entry.ready_at is not None and entry.ready_at < now - _LATE:
            yield f"a request waits beyond its time: {controller.name} {entry.key} {entry.ready_at:.3f}"
        if entry.ready_at is None and entry.key not in queue._working and queue._getters:
            yield f"a request is ready, and a worker waits: {controller.name} {entry.key}"


def undelivered(controller: Controller, sources: Sequence[source.Source]) -> Iterator[str]:
    """Yield a description of each source that has events for its handler. In a cluster at rest there is none."""
    for src in sources:
        kind = src._source if isinstance(src, source.Deferred) else src
        if isinstance(kind, source.Kind) and (kind._dispatcher._calls or len(kind._dispatcher._retries)):
            yield f"a handler does not get its events: {controller.name} {kind}"
