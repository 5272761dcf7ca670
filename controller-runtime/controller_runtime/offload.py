# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run work on large objects in threads, so that it does not block the event loop. Other work runs directly.

At most :data:`THREADS` pieces of work of reconciles and as many of reviews run at the same time, and only one piece of
each namespace. Therefore the work of one namespace never waits for the backlog of another, and reviews do not wait for
reconciles. Only one thread at a time runs Python code, so more threads would not finish the work sooner; they would
only slow down the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Final, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from controller_runtime import fairness
from controller_runtime.machinery import LazyObject, Object

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Object)

STEP: Final = 16
"""A loop over objects gives other tasks a turn after this many objects. Decoding as many small objects takes about half
a millisecond."""
LARGE: Final = 16 * 1024
"""An object of more than this many bytes of JSON is large: work on it may take more than a millisecond or two."""
THREADS: Final = 2
"""Maximum number of threads for the work of reconciles, and for that of reviews."""

_object_size: Final[ContextVar[int]] = ContextVar("offload_object_size", default=0)


class object_size:  # noqa: N801  # reads as the context manager that it is
    """Declare the size in bytes of the object that is processed in this block and in the tasks that the block starts.

    In nested blocks, the largest size counts.
    """

    __slots__ = ("_size", "_token")

    def __init__(self, size: int) -> None:
        self._size = size
        self._token: Token[int] | None

    def __enter__(self) -> None:
        # A size up to LARGE does not change the result of ``is_large``.
        larger = self._size > LARGE and self._size > _object_size.get()
        self._token = _object_size.set(self._size) if larger else None

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _object_size.reset(self._token)


def is_large(size: int = 0) -> bool:
    """Return True if work on ``size`` bytes, or on the object of the surrounding block, should run in a thread."""
    return size > LARGE or _object_size.get() > LARGE


class _Threads:
    """The threads for one sort of work, of which a namespace uses at most one at a time."""

    def __init__(self, resource: str) -> None:
        self._queue = fairness.FairQueue(resource, self._leave)
        self._working: set[str] = set()
        self._limiter = anyio.CapacityLimiter(THREADS)

    async def run(self, namespace: str, size: int, work: Callable[[], R]) -> R:
        """Return the result of ``work``, which runs in a thread when it is the turn of its namespace."""
        if len(self._working) < THREADS and namespace not in self._working:
            self._working.add(namespace)
        else:
            await self._queue.wait(namespace, size)
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._leave(namespace)

    def _leave(self, namespace: str) -> None:
        self._working.discard(namespace)
        while (
            len(self._working) < THREADS and (following := self._queue.admit(busy=self._working)) is not None
        ):
            self._working.add(following)


async def run_sized(size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` on data of ``size`` bytes, as :func:`run` does in an :class:`object_size` block."""
    if not is_large(size):
        return work(*args, **kwargs)
    with object_size(size):
        return await run(work, *args, **kwargs)


async def decoded(lazy: LazyObject[T]) -> T:
    """Return ``lazy.object``. A large object is decoded in a thread."""
    if lazy.known is not None or (size := len(lazy.text or b"")) <= LARGE:
        return lazy.object
    return await run_sized(size, lambda: lazy.object)


_threads: Final[anyio.lowlevel.RunVar[dict[bool, _Threads]]] = anyio.lowlevel.RunVar("offload_threads")
"""The threads for reconciles and, under True, those for reviews."""


async def run(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` and return its result.

    In an :class:`object_size` block for a large object, ``work`` runs in a thread. Elsewhere, it runs directly.

    ``work`` must not use shared mutable state. If the caller is cancelled while the thread runs, the cancellation is
    raised after ``work`` has ended.
    """
    if (size := _object_size.get()) <= LARGE:
        return work(*args, **kwargs)
    threads = _threads.get(None)
    if threads is None:
        threads = {False: _Threads("thread"), True: _Threads("review thread")}
        _threads.set(threads)
    who = fairness.tenant()
    return await threads[who.is_review].run(who.namespace, size, lambda: work(*args, **kwargs))
