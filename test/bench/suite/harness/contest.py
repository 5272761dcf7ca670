# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A contest: in each round, every program runs the same workload in turn, and its figures are recorded."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import psutil
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError
from harness import figures
from harness.manager import Manager, ManagerError, cpu_of
from harness.plan import Entrant

_READS = ("list", "watch")
_PARTIES = ("manager", "apiserver", "etcd", "bench")


@dataclass
class Found:
    """The figures of one program in one round, by name."""

    values: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str) -> None:
        """Record a figure."""
        self.values[name] = (value, unit)

    def latencies(self, name: str, seconds: Iterable[float]) -> None:
        """Record the quantiles of latencies, in milliseconds."""
        ranked = sorted(seconds)
        for percent in (50, 95, 99):
            which = min(len(ranked) - 1, -(-len(ranked) * percent // 100) - 1)
            self.add(f"{name}.p{percent}", max(0.0, ranked[which]) * 1000, "ms")

    def requests(self, name: str, counted: Counter[str], count: int, unit: str) -> None:
        """Record the requests per object, by verb and resource, without lists, watches and discovery."""
        by_object = {
            what: n
            for what, n in counted.items()
            if what.split()[0] not in _READS and what != "get discovery"
        }
        self.add(f"{name}.requests", sum(by_object.values()) / count, unit)
        for what, times in sorted(by_object.items()):
            if times / count >= 0.002:
                self.add(f"{name}.requests.{what}", times / count, unit)

    def memory(self, name: str, manager: Manager) -> None:
        """Record the resident memory and its peak."""
        memory = manager.memory()
        self.add(f"{name}.rss", memory.now, "MiB")
        self.add(f"{name}.peak_rss", memory.peak, "MiB")


@asynccontextmanager
async def phase(
    found: Found, name: str, manager: Manager, count: int | None = None, unit: str = "job"
) -> AsyncIterator[None]:
    """Record the cost of the body, per 1,000 objects with ``count`` or else in total, and the memory after it."""
    cluster = manager.cluster

    def read() -> dict[str, float]:
        times = psutil.cpu_times()
        parties = {"apiserver": cluster.api_server, "etcd": cluster.etcd, "bench": psutil.Process()}
        return {
            "manager": manager.cpu(),
            **{who: cpu_of(process) for who, process in parties.items()},
            "machine": sum(times) - times.idle - times.iowait - times.guest - times.guest_nice,
            "wall": time.perf_counter(),
        }

    before, begin = read(), cluster.audited()
    yield
    after, end = read(), cluster.audited()
    spent = {who: max(0.0, after[who] - before[who]) for who in after}  # a process may have been replaced
    share, spending = (1.0, "CPU s") if count is None else (1000 / count, f"CPU s/1,000 {unit}s")
    for who in _PARTIES:
        found.add(f"{name}.{who}_cpu", spent[who] * share, spending)
    others = spent["machine"] - sum(spent[who] for who in _PARTIES)
    cores = psutil.cpu_count() or 1
    taken = round(max(0.0, others) / (spent["wall"] * cores) * 100, 1)
    found.add(f"{name}.others", taken, "% of the machine")
    found.requests(name, cluster.requests(begin, end), count or 1, f"/{unit}" if count else "in all")
    found.memory(name, manager)


Run = Callable[[Entrant], Awaitable[Found]]


async def contest(
    rounds: int, entrants: Sequence[Entrant], run: Run, *, apart: bool = False
) -> dict[str, list[Found]]:
    """Return the figures of each entrant, round by round.

    The order of the entrants changes with each round. A round in which an entrant fails is discarded; with ``apart``,
    only the figures of that entrant are.

    Raises:
        ManagerError: all rounds were discarded.
    """
    whole: dict[str, list[Found]] = {each.name: [] for each in entrants}
    order = list(entrants)
    for number in range(rounds):
        came_to: dict[str, Found] = {}
        for each in order:
            began = time.perf_counter()
            try:
                came_to[each.name] = await run(each)
                sys.stderr.write(f"  round {number + 1}: {each.name}, {time.perf_counter() - began:.0f} s\n")
            except (ManagerError, StatusError, RestError, ExceptionGroup) as error:
                sys.stderr.write(f"  round {number + 1}: {each.name} failed: {_told(error)}\n")
                if not apart:
                    break
        if apart or len(came_to) == len(order):
            for name, found in came_to.items():
                whole[name].append(found)
        order = order[1:] + order[:1]
    if not any(whole.values()):
        raise ManagerError("every round failed")
    return {name: found for name, found in whole.items() if found}


def combine(
    prefix: str, whole: Mapping[str, Sequence[Found]], targets: Mapping[str, str] = MappingProxyType({})
) -> list[figures.Figure]:
    """Return the first entrant's figures compared with each other entrant's, or alone without others."""
    (first, ours), *others = whole.items()
    names = _names(found for arm in whole.values() for found in arm)
    made = []
    for name in names:
        unit = next(each.values[name][1] for found in whole.values() for each in found if name in each.values)
        rounds = [each.values.get(name, (0.0, unit))[0] for each in ours]
        for other, theirs in others or [("", [])]:
            alternative = (other, [each.values.get(name, (0.0, unit))[0] for each in theirs])
            made.append(
                figures.figure(
                    f"{prefix}.{name}",
                    unit,
                    rounds,
                    alternative=alternative if other else None,
                    target=targets.get(name, ""),
                    arm=first,
                )
            )
    return made


def _names(every: Iterable[Found]) -> list[str]:
    """Return all names in order; requests that only later entrants send follow the other requests of their phase."""
    names: list[str] = []
    for found in every:
        for name in found.values:
            if name in names:
                continue
            like = name.partition("requests.")[0] + "requests"
            at = max((at for at, other in enumerate(names, 1) if other.startswith(like)), default=len(names))
            names.insert(at, name)
    return names


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"
