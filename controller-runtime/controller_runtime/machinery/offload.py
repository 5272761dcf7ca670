# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run work on large objects in a thread, so that it does not block the event loop, and other work directly.

Per event loop, only one piece of work runs in a thread at a time. More threads would not finish the work sooner, and
each would take an equal share of the interpreter's time from the loop.
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

LARGE: Final = 16 * 1024
"""Bytes of JSON beyond which work on an object may take more than a millisecond or two."""

_weight: Final[ContextVar[int]] = ContextVar("offload_weight", default=0)
_turn: Final[anyio.lowlevel.RunVar[anyio.CapacityLimiter]] = anyio.lowlevel.RunVar("offload_turn")


class weighing:  # noqa: N801  # reads as the context manager that it is
    """Set the size in bytes of the object that the block, and tasks started in it, work on.

    Of nested blocks, the largest size counts.
    """

    __slots__ = ("_size", "_token")

    def __init__(self, size: int) -> None:
        self._size = size
        self._token: Token[int] | None

    def __enter__(self) -> None:
        # A size up to LARGE does not change the result of ``is_large``.
        heavier = self._size > LARGE and self._size > _weight.get()
        self._token = _weight.set(self._size) if heavier else None

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _weight.reset(self._token)


def is_large(size: int = 0) -> bool:
    """Return True if work on ``size`` bytes, or on the object of the surrounding block, should run in a thread."""
    return size > LARGE or _weight.get() > LARGE


async def run(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work``; in a block of :class:`weighing` with a large object, it runs in a thread.

    ``work`` must not use shared mutable state. If the caller is cancelled while the thread runs, the cancellation is
    raised after ``work`` has ended.
    """
    if _weight.get() <= LARGE:
        return work(*args, **kwargs)
    turn = _turn.get(None)
    if turn is None:
        turn = anyio.CapacityLimiter(1)
        _turn.set(turn)
    return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=turn)
