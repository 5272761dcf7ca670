# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The origins of items in a queue, with the times at which they were noted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from controller_runtime.workqueue import Origins

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Wait:
    """The stay of an item in a queue; times are nanoseconds since the epoch."""

    since: int
    """The time of its first origin."""
    origins: dict[str, int] = field(default_factory=dict)
    """The time of each origin."""


class TimedOrigins(Origins[T]):
    """Notes origins and their times: the controller takes the origins for its log, and then the tracer the times."""

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        super().__init__()
        self._now = now
        self._waiting: OrderedDict[T, Wait] = OrderedDict()
        self._taken: dict[T, Wait] = {}

    def note(self, item: T, origin: str) -> None:
        """Keep one more origin of an item, and the time."""
        super().note(item, origin)
        now = self._now()
        wait = self._waiting.setdefault(item, Wait(now))
        wait.origins[origin] = now
        kept = self._kept.get(item, {})
        if len(wait.origins) > len(kept):
            wait.origins = {each: time for each, time in wait.origins.items() if each in kept}
        if len(self._waiting) > len(self._kept):
            self._waiting.popitem(last=False)

    def take(self, item: T) -> list[str]:
        """Return the origins of an item, oldest first; :meth:`waited` returns their times, once."""
        if (wait := self._waiting.pop(item, None)) is not None:
            self._taken[item] = wait
        return super().take(item)

    def waited(self, item: T) -> Wait | None:
        """Return the stay in the queue of the item that was taken last, if anything was noted."""
        return self._taken.pop(item, None)
