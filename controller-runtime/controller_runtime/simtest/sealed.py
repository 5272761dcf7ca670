# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Isolate a run from the machine: its clock, its random numbers, and new threads, processes and connections.

Within :func:`sealed`:

- ``time`` and ``datetime.now`` show the time of the loop.
- ``random``, ``secrets``, ``uuid`` and ``os.urandom`` return numbers that the seed determines.
- ``anyio.to_thread.run_sync`` calls the function in this thread.
- Attempts to leave the simulation raise :class:`LeakError`.

A module that is first imported during a run may keep a replaced function. The replacements of clocks and of
``os.urandom`` therefore call the real functions outside a run. The hash seed of Python is not replaced. To find code
that depends on the order of hashes, use ``python -m controller_runtime.simtest check``.
"""

from __future__ import annotations

import asyncio
import datetime as datetimes
import functools
import importlib.metadata
import logging
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import anyio._core._eventloop
import anyio.lowlevel
import anyio.to_thread
from anyio._backends._asyncio import CancelScope

from controller_runtime import log

from .loop import LOOP_START, LeakError, SimLoop

EPOCH: Final = 1_767_225_600.0 - LOOP_START
"""The wall clock's time when the loop's clock is zero, such that each run begins on 1 January 2026."""

_NOTHING: Final = -100
"""A verbosity so low that no message is logged."""
# Reading this name loads structlog. During a run, the import would use the random numbers of the run.
_LOADED: Final = log.verbosity
_RealDatetime = datetimes.datetime


@dataclass(slots=True)
class _Sources:
    """Where a run gets its time and its random bytes from."""

    wall: Callable[[], float]
    steady: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    leaks: list[LeakError]
    """The errors that the program got when it used something outside the simulation: it may have caught them."""


_sources: _Sources | None = None
"""The sources of the current run, or None outside a run."""


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealDatetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _RealDatetime)


class _SimDatetime(_RealDatetime, metaclass=_Meta):
    """A ``datetime`` whose ``now`` follows the run's clock; its instances are plain ``datetime`` objects."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _RealDatetime(*args, **options)

    @classmethod
    def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
        return _RealDatetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _RealDatetime.fromtimestamp(time.time(), datetimes.UTC).replace(tzinfo=None)


def _clocks() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield the functions that return the time or random bytes: module, name and replacement."""
    for name, by_wall in (
        ("time", True),
        ("monotonic", False),
        ("perf_counter", False),
        ("process_time", False),
    ):
        yield time, name, _clock(getattr(time, name), 1, by_wall=by_wall)
        yield time, f"{name}_ns", _clock(getattr(time, f"{name}_ns"), 1_000_000_000, by_wall=by_wall)
    for name in ("gmtime", "localtime"):
        yield time, name, _calendar(getattr(time, name))
    random_bytes = _bytes(os.urandom)
    yield os, "urandom", random_bytes
    yield random, "_urandom", random_bytes


def _clock(real: Callable[[], Any], ticks: int, *, by_wall: bool) -> Callable[[], Any]:
    def now() -> Any:
        if _sources is None:
            return real()
        seconds = _sources.wall() if by_wall else _sources.steady()
        return seconds if ticks == 1 else int(seconds * ticks)

    return now


def _calendar(real: Callable[[float | None], Any]) -> Callable[..., Any]:
    def convert(seconds: float | None = None) -> Any:
        return real(_sources.wall() if seconds is None and _sources is not None else seconds)

    return convert


def _bytes(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def random_bytes(count: int) -> bytes:
        return real(count) if _sources is None else _sources.random_bytes(count)

    return random_bytes


_CLOCKS: Final = tuple(_clocks())

# The metadata of the installed packages is read once, not by every manager of every life.
_real_distributions = importlib.metadata.distributions
_text_of_distribution = functools.cache(importlib.metadata.PathDistribution.read_text)


@functools.cache
def _distributions() -> tuple[importlib.metadata.Distribution, ...]:
    return tuple(_real_distributions())


@contextmanager
def sealed(
    loop: SimLoop, rng: random.Random, *, drift: Callable[[], float] = lambda: 0.0
) -> Iterator[list[LeakError]]:
    """Isolate the program while ``loop`` runs; ``drift`` returns the seconds by which the wall clock is ahead.

    Yield a list that receives each attempt of the program to leave the simulation.
    """
    global _sources  # noqa: PLW0603 -- functions of the whole interpreter read it

    state = random.getstate()
    random.seed(rng.getrandbits(64))
    with ExitStack() as patches:
        for target, name, value in (
            *_CLOCKS,
            (time, "sleep", _refuse("time.sleep")),
            (threading.Thread, "start", _refuse("a thread")),
            (subprocess.Popen, "__init__", _refuse("a process")),
            (socket.socket, "connect", _refuse("a connection")),
            (socket, "getaddrinfo", _refuse("a look-up of a host")),
            (socket, "gethostname", lambda: "simulation"),
            (os, "getpid", lambda: 1),
            (anyio.to_thread, "run_sync", _inline),
            (anyio._core._eventloop, "current_async_library", _library),
            (datetimes, "datetime", _SimDatetime),
            (importlib.metadata, "distributions", _distributions),
            (importlib.metadata.PathDistribution, "read_text", _text_of_distribution),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        begin = CancelScope.__init__

        def scope(self: CancelScope, *args: Any, **options: Any) -> None:
            begin(self, *args, **options)
            # anyio keeps child scopes in a set, whose order depends on addresses.
            self._child_scopes = _InOrder()  # type: ignore[assignment]

        patches.enter_context(mock.patch.object(CancelScope, "__init__", scope))
        patches.enter_context(_silence())
        for module in _modules_with_datetime():
            patches.enter_context(mock.patch.object(module, "datetime", _SimDatetime))
        leaks: list[LeakError] = []
        _sources = _Sources(lambda: loop.time() + EPOCH + drift(), loop.time, rng.randbytes, leaks)
        try:
            yield leaks
        finally:
            _sources = None
            random.setstate(state)


def _modules_with_datetime() -> list[Any]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if getattr(module, "__dict__", {}).get("datetime") is _RealDatetime and name != "datetime"
    ]


class _InOrder(dict[Any, None]):
    """A set that keeps the order in which its items were added."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]

    def discard(self, item: Any) -> None:
        self.pop(item, None)


def _library() -> str | None:
    """Return the name of the async library that is running. anyio calls this function very often."""
    return None if asyncio._get_running_loop() is None else "asyncio"


@contextmanager
def _silence() -> Iterator[None]:
    """Write no logs, because a run would spend most of its time on them."""
    loggers = logging.getLogger("controller_runtime")
    before = loggers.level  # unlike the verbosity, it says if the level is that of the root logger
    log.limit(_NOTHING)
    try:
        yield
    finally:
        loggers.setLevel(before)


def _refuse(act: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        error = LeakError(f"{act} in a simulation")
        if _sources is not None:
            _sources.leaks.append(error)
        raise error

    return refuse


async def _inline(func: Callable[..., Any], *args: Any, **_: object) -> Any:
    """Run a function in this thread instead of another one. Let other tasks run before and after it."""
    await anyio.lowlevel.checkpoint()
    try:
        return func(*args)
    finally:
        await anyio.lowlevel.cancel_shielded_checkpoint()
