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


class Resumes(Observer):
    """Follows the watches of all processes; ``fail`` takes the description of a broken rule."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._refusals: dict[tuple[Process, str, str], int] = {}
        """Refusals in a row of a watch that had a version."""

    def sends(self, process: Process, request: Request) -> None:
        """Check a watch that begins with a list."""
        query = dict(request.query)
        refusals = self._refusals.get(_watch(process, request), 0)
        if query.get("sendInitialEvents") == "true" and 0 < refusals < MAX_RESUMES:
            self._fail(f"a watch that was refused begins again with a list: {process.name} {request.path}")

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """Count refusals of watches that have a version."""
        query = dict(request.query)
        if query.get("watch") != "true":
            return
        watch = _watch(process, request)
        if response.status == _DENIED and query.get("resourceVersion") and "sendInitialEvents" not in query:
            self._refusals[watch] = self._refusals.get(watch, 0) + 1
        else:
            self._refusals.pop(watch, None)


def _watch(process: Process, request: Request) -> tuple[Process, str, str]:
    return process, request.path, request.headers.get("Accept", "")
