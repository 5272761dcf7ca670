# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Work on large objects, away from the event loop, depending on the bytes that it has to process.

Only one piece of work runs at a time. More threads would not make any of them faster, and each takes an equal part
of the interpreter's time from the loop.
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
    """Set the size in bytes of the object that the block and its tasks work on; of several, the largest counts."""

    __slots__ = ("_size", "_token")

    def __init__(self, size: int) -> None:
        self._size = size
        self._token: Token[int] | None

    def __enter__(self) -> None:
        # A small object changes no answer of ``is_large``.
        heavier = self._size > LARGE and self._size > _weight.get()
        self._token = _weight.set(self._size) if heavier else None

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _weight.reset(self._token)


def is_large(size: int = 0) -> bool:
    """Return True if work on ``size`` bytes, or on the object of the surrounding block, runs in a thread."""
    return size > LARGE or _weight.get() > LARGE


async def run(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work``; work on more than :data:`LARGE` bytes runs in a thread.

    ``work`` must not use shared mutable state. When the caller is cancelled, it runs to its end first.
    """
    if _weight.get() <= LARGE:
        return work(*args, **kwargs)
    turn = _turn.get(None)
    if turn is None:
        turn = anyio.CapacityLimiter(1)
        _turn.set(turn)
    return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=turn)
