# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for waiting work: a delayed request becomes ready at its time, and a worker takes a ready request at once.

The retries of other requests, or the next event, would hide that a request was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from controller_runtime.controller import Controller
from controller_runtime.source import Source

_LATE: Final = 1.0
"""A request may become ready this many seconds after its time."""


def forgotten(controller: Controller) -> Iterator[str]:
    """Yield a description of each request that should not wait any more.

    Call it twice, some seconds apart: only descriptions that both calls yield are problems, because a worker or a timer
    may be about to act.
    """
    if controller.queue.shutting_down:
        return
    for key, ready_at in controller.queue.overdue(_LATE):
        if ready_at is None:
            yield f"a request is ready, and a worker waits: {controller.name} {key}"
        else:
            yield f"a request waits beyond its time: {controller.name} {key} {ready_at:.3f}"


def undelivered(controller: Controller, sources: Sequence[Source]) -> Iterator[str]:
    """Yield a description of each source that has events for its handler. In a cluster at rest there is none."""
    for source in sources:
        if source.undelivered:
            yield f"a handler does not get its events: {controller.name} {source}"
