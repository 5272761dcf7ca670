# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Closes off what a run must not depend on: the wall clock, random numbers, threads.

Within :func:`sealed`, ``time`` and ``datetime.now`` follow the loop's clock, ``random``, ``uuid`` and ``os.urandom``
follow the seed, work for a thread runs at once, and a new thread or ``time.sleep`` raises :class:`LeakError`. To find
code that depends on the order of hashes, run a seed under several values of PYTHONHASHSEED.
"""

from __future__ import annotations

import datetime as datetimes
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import anyio.lowlevel
import anyio.to_thread
import structlog
from anyio._backends._asyncio import CancelScope

from controller_runtime.log import logger as log

from .loop import START, LeakError, SimLoop

EPOCH: Final = 1_767_225_600.0 - START
"""The wall clock's time at the loop's zero: runs begin on 1 January 2026."""

_NOTHING: Final = -100
"""A verbosity below that of every message."""
_RealDatetime = datetimes.datetime


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealDatetime)


class _SimDatetime(_RealDatetime, metaclass=_Meta):
    clock: Callable[[], float] = time.time

    @classmethod
    def now(cls, tz: datetimes.tzinfo | None = None) -> Any:
        return _RealDatetime.fromtimestamp(cls.clock(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        raise LeakError("datetime.utcnow")


@contextmanager
def sealed(loop: SimLoop, rng: random.Random, *, drift: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Close the world off while ``loop`` runs; ``drift`` is how far the wall clock is from the loop's, in seconds."""

    def wall() -> float:
        return loop.time() + EPOCH + drift()

    state = random.getstate()
    random.seed(rng.getrandbits(64))
    _SimDatetime.clock = wall
    with ExitStack() as patches:
        for target, name, value in (
            (time, "time", wall),
            (time, "time_ns", lambda: int(wall() * 1e9)),
            (time, "monotonic", loop.time),
            (time, "perf_counter", loop.time),
            (time, "sleep", _refuse("time.sleep")),
            (os, "urandom", rng.randbytes),
            (threading.Thread, "start", _refuse("a thread")),
            (socket, "gethostname", lambda: "simulation"),
            (anyio.to_thread, "run_sync", _inline),
        ):
            patches.enter_context(mock.patch.object(target, name, value))
        begin = CancelScope.__init__

        def scope(self: CancelScope, *args: Any, **options: Any) -> None:
            begin(self, *args, **options)
            # anyio keeps a set, whose order depends on addresses.
            self._child_scopes = _InOrder()  # type: ignore[assignment]

        patches.enter_context(mock.patch.object(CancelScope, "__init__", scope))
        patches.enter_context(_silence())
        for module in _modules_with_datetime():
            patches.enter_context(mock.patch.object(module, "datetime", _SimDatetime))
        try:
            yield
        finally:
            random.setstate(state)


def _modules_with_datetime() -> list[Any]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if getattr(module, "__dict__", {}).get("datetime") is _RealDatetime and name != "datetime"
    ]


class _InOrder(dict[Any, None]):
    """A set in the order of insertion."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]

    def discard(self, item: Any) -> None:
        self.pop(item, None)


@contextmanager
def _silence() -> Iterator[None]:
    """Write no log: rendering it would be most of the work of a run."""
    before = structlog.get_config()
    sink = log.Sink(None, _NOTHING)
    structlog.configure(
        processors=[],
        wrapper_class=log.Logger,
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise LeakError(f"{what} in a simulation")

    return refuse


async def _inline(func: Callable[..., Any], *args: Any, **_: object) -> Any:
    """Run in this thread what was meant for another; others may run before and after."""
    await anyio.lowlevel.checkpoint()
    try:
        return func(*args)
    finally:
        await anyio.lowlevel.cancel_shielded_checkpoint()
