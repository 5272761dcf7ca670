# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rules for what managers report: events and metrics.

Each event that a manager sends is stored, unless the server refuses it or cannot be reached for a long time. If an
event is repeated, its count increases. The metrics of a controller count its reconciles correctly, for each result.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import anyio

from controller_runtime import metrics
from controller_runtime.apis.core.v1 import Event as Reported
from controller_runtime.controller import Controller
from controller_runtime.controller.controller import ERROR, REQUEUE_AFTER, SUCCESS
from controller_runtime.fake.watches import Event
from controller_runtime.machinery import NamespacedName
from controller_runtime.manager import Manager
from controller_runtime.reconcile import Request, Result
from controller_runtime.rest import Request as Sent
from controller_runtime.rest import Response

from .loop import Process
from .network import WRITE_METHODS, Observer

_MANY: Final = 10
"""After this many requests for one event, a recorder may drop the event."""
_RESULTS = (SUCCESS, REQUEUE_AFTER, ERROR)


@dataclass
class _Sending:
    """How many requests a process has sent for its current event, and whether one was refused."""

    sent: int = 0
    refused: bool = False


class Events(Observer):
    """Checks the events of all processes; calls ``fail`` with a description if a rule is broken."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._stored: dict[NamespacedName, int] = {}
        """The highest count of each event that the server has stored."""
        self._sending: dict[Process, _Sending] = {}

    def see(self, event: Event) -> None:
        """Note an event that is stored."""
        if event.table.properties.gvk == Reported.gvk and event.type != "DELETED":
            count = int(event.document.get("count") or 1)
            before = event.before or event.document
            # A patch whose answer was lost is sent again with the same time; a patch that is late has a lower count.
            repeats = before.get("lastTimestamp") != event.document.get("lastTimestamp")
            if repeats and count == int(before.get("count") or 1):
                self._fail(f"a repeated event is not counted: {event.key.name}: {count}")
            self._stored[event.key] = max(count, self._stored.get(event.key, 0))

    def follow(self, process: Process, manager: Manager) -> None:
        """Check the events of a process from now on."""
        self._sending[process] = _Sending()

        def check(event: Reported) -> None:
            sending, self._sending[process] = self._sending[process], _Sending()
            stored = self._stored.get(event.key, 0)
            if stored < (event.count or 1) and not sending.refused and sending.sent < _MANY:
                self._fail(f"an event was lost: {process.name}: {event.message}")

        manager.on_event(check)

    def sends(self, process: Process, request: Sent) -> None:
        """Count a request."""
        if _is_of_event(request) and process in self._sending:
            self._sending[process].sent += 1

    def answered(self, process: Process, request: Sent, response: Response) -> None:
        """Note a refusal.

        Two answers are not refusals: a new event exists already, and the event to be repeated has expired.
        """
        expected = {"POST": 409, "PATCH": 404}.get(request.method)
        if _is_of_event(request) and process in self._sending:
            self._sending[process].refused |= response.status >= 400 and response.status != expected


def _is_of_event(request: Sent) -> bool:
    return request.method in WRITE_METHODS and "/events" in request.path


class ReconcileCounts:
    """Counts the reconciles of all managers of a life, which share one registry."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()
        """The number of reconciles, by controller and result."""
        self._before: dict[str, dict[str, float]] = {}
        """The values of each controller's metrics at the beginning of the life."""
        self._working: list[tuple[str, set[Request]]] = []
        """The name of each controller, and the requests that it is reconciling.

        If the process of a controller is killed, its requests stay in the set.
        """

    def follow(
        self, controller: Controller, working: set[Request], reconcile: Callable[[Request], Awaitable[Result]]
    ) -> Callable[[Request], Awaitable[Result]]:
        """Return a function that calls ``reconcile`` and counts the results."""
        name = controller.name
        self._before.setdefault(name, _values(name))
        self._working.append((name, working))

        async def counted(request: Request) -> Result:
            try:
                result = await reconcile(request)
            except asyncio.CancelledError:
                if anyio.current_effective_deadline() != -math.inf:  # else the controller is stopped
                    self._counted[name, ERROR] += 1
                raise
            except Exception:  # counted, and raised again
                self._counted[name, ERROR] += 1
                raise
            after = result.requeue_after
            is_later = after is not None and after.total_seconds() > 0
            self._counted[name, REQUEUE_AFTER if is_later else SUCCESS] += 1
            return result

        return counted

    def problems(self) -> Iterator[str]:
        """Yield descriptions of wrong metrics. Call it only while no controller of a running manager reconciles."""
        for name, before in self._before.items():
            now = _values(name)
            for result in _RESULTS:
                shown, counted = now[result] - before[result], self._counted[name, result]
                if shown != counted:
                    yield f"a metric has {shown:.0f} reconciles with the result {result}, not {counted}: {name}"
            failed = now["errors"] - before["errors"]
            if failed != self._counted[name, ERROR]:
                yield f"a metric has {failed:.0f} errors, not {self._counted[name, ERROR]}: {name}"
            # The metric may be too low: a controller sets it to 0 at its start, and workers of an earlier life decrease
            # it later.
            active = sum(len(working) for other, working in self._working if other == name)
            if now["active"] > active:
                yield f"a metric has {now['active']:.0f} active workers, not {active}: {name}"


def _values(name: str) -> dict[str, float]:
    values = {result: _value(metrics.RECONCILE_TOTAL.labels(name, result)) for result in _RESULTS}
    errors, active = metrics.RECONCILE_ERRORS.labels(name), metrics.ACTIVE_WORKERS.labels(name)
    return {**values, "errors": _value(errors), "active": _value(active)}


def _value(metric: Any) -> float:
    return float(metric.collect()[0].samples[0].value)
