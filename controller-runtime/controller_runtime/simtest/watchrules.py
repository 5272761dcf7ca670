# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rule for the requests of watches: one that is refused for a moment is resumed, not begun again with a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_runtime.cache.states import MAX_RESUMES
from controller_runtime.rest import Request, Response

from .loop import Process
from .network import Observer

_DENIED: Final = 403
_MEMORY: Final = 300.0
"""Seconds for which a request may count as a failure: a watch that lasts for less than some seconds does."""
_Watch = tuple[Process, str, str]


class Resumes(Observer):
    """Follows the watches of all processes; ``fail`` takes the description of a broken rule."""

    def __init__(self, fail: Callable[[str], None], now: Callable[[], float]) -> None:
        self._fail = fail
        self._now = now
        self._sent: dict[_Watch, list[float]] = {}
        """When a watch with a version was sent."""
        self._refused: set[_Watch] = set()
        """Watches with a version whose last answer was a refusal."""

    def sends(self, process: Process, request: Request) -> None:
        """Check a watch that begins with a list."""
        query, watch, now = dict(request.query), _watch(process, request), self._now()
        if query.get("watch") != "true":
            return
        sent = self._sent[watch] = [at for at in self._sent.get(watch, ()) if at > now - _MEMORY]
        if "sendInitialEvents" not in query:
            sent.append(now)
        elif watch in self._refused and len(sent) < MAX_RESUMES:
            self._fail(f"a watch that was refused begins again with a list: {process.name} {request.path}")
        self._refused.discard(watch)

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """Note a refusal of a watch that has a version."""
        query = dict(request.query)
        if query.get("watch") == "true" and "sendInitialEvents" not in query and response.status == _DENIED:
            self._refused.add(_watch(process, request))


def _watch(process: Process, request: Request) -> _Watch:
    return process, request.path, request.headers.get("Accept", "")
