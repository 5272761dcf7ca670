# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The rule for the metrics of controllers: they count what has happened."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio

from controller_runtime import metrics
from controller_runtime.controller import Controller, reporting
from controller_runtime.reconcile import Request, Result

_RESULTS = (reporting.SUCCESS, reporting.REQUEUE_AFTER, reporting.ERROR)


class Metrics:
    """Counts the reconciles of all managers of a life, which share one registry."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()
        """By controller and result."""
        self._before: dict[str, dict[str, float]] = {}
        """By controller, the values of its metrics when the life began."""
        self._working: list[tuple[str, set[Request]]] = []
        """The controllers, and the requests that each reconciles; those of a process that was killed stay."""

    def follow(
        self, controller: Controller, working: set[Request], reconcile: Callable[[Request], Awaitable[Result]]
    ) -> Callable[[Request], Awaitable[Result]]:
        """Return ``reconcile`` with a count of its results."""
        name = controller.name
        self._before.setdefault(name, _values(name))
        self._working.append((name, working))

        async def counted(request: Request) -> Result:
            try:
                result = await reconcile(request)
            except asyncio.CancelledError:
                if anyio.current_effective_deadline() != -math.inf:  # else the controller is stopped
                    self._counted[name, reporting.ERROR] += 1
                raise
            except Exception:
                self._counted[name, reporting.ERROR] += 1
                raise
            after = result.requeue_after
            is_later = after is not None and after.total_seconds() > 0
            self._counted[name, reporting.REQUEUE_AFTER if is_later else reporting.SUCCESS] += 1
            return result

        return counted

    def problems(self) -> Iterator[str]:
        """Yield the metrics that are wrong while no controller of a running manager works."""
        for name, before in self._before.items():
            now = _values(name)
            for result in _RESULTS:
                shown, counted = now[result] - before[result], self._counted[name, result]
                if shown != counted:
                    yield f"a metric has {shown:.0f} reconciles with the result {result}, not {counted}: {name}"
            failed = now["errors"] - before["errors"]
            if failed != self._counted[name, reporting.ERROR]:
                yield f"a metric has {failed:.0f} errors, not {self._counted[name, reporting.ERROR]}: {name}"
            # Workers of an earlier life may end only now.
            active = sum(len(working) for other, working in self._working if other == name)
            if now["active"] - before["active"] > active:
                yield f"a metric has {now['active'] - before['active']:.0f} active workers, not {active}: {name}"


def _values(name: str) -> dict[str, float]:
    found = {result: _value(metrics.RECONCILE_TOTAL.labels(name, result)) for result in _RESULTS}
    errors, active = metrics.RECONCILE_ERRORS.labels(name), metrics.ACTIVE_WORKERS.labels(name)
    return {**found, "errors": _value(errors), "active": _value(active)}


def _value(metric: Any) -> float:
    return float(metric._value.get())
