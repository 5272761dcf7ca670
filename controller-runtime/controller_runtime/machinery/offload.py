# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run work on large objects in a thread, so that it does not block the event loop. Other work runs directly.

Per event loop, only one piece of work runs in a thread at a time. Only one thread at a time runs Python code, so more
threads would not finish the work sooner and would slow down the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Final, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

P = ParamSpec("P")
R = TypeVar("R")

STEP: Final = 16
"""A loop over objects gives other tasks a turn after this many objects. Decoding as many small objects takes about half
a millisecond."""
LARGE: Final = 16 * 1024
"""An object of more than this many bytes of JSON is large: work on it may take more than a millisecond or two."""

_object_size: Final[ContextVar[int]] = ContextVar("offload_object_size", default=0)
_limiter: Final[anyio.lowlevel.RunVar[anyio.CapacityLimiter]] = anyio.lowlevel.RunVar("offload_limiter")


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


async def run(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` and return its result.

    In an :class:`object_size` block for a large object, ``work`` runs in a thread. Elsewhere, it runs directly.

    ``work`` must not use shared mutable state. If the caller is cancelled while the thread runs, the cancellation is
    raised after ``work`` has ended.
    """
    if _object_size.get() <= LARGE:
        return work(*args, **kwargs)
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(1)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=limiter)
