# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Stacks of all threads and of all tasks of the running event loop, as text."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_MOST_NAMES: Final = 5
"""Names that are listed of tasks with one stack."""
_DEEPEST: Final = 200
_FRAMES: Final = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED: Final = ("cr_await", "gi_yieldfrom", "ag_await")


def describe() -> str:
    """Return the stacks of threads, then of tasks; tasks with one stack are counted together, the most frequent first.

    The innermost call is last. Call it in the event loop's thread.
    """
    return "\n".join([*_threads(), *_tasks()])


def frames_of(frame: FrameType | None) -> list[FrameType]:
    """Return a thread's frames, the outermost first; of more than 200, the innermost."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    return frames


def _threads() -> Iterator[str]:
    names = {each.ident: each.name for each in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}:"
        yield from (f"    {_place(each, each.f_lineno)}" for each in frames_of(frame))
        yield ""


def _tasks() -> Iterator[str]:
    stacks: dict[tuple[str, ...], list[str]] = {}
    for task in asyncio.all_tasks():
        stacks.setdefault(tuple(_awaited(task.get_coro())), []).append(task.get_name())
    for stack, names in sorted(stacks.items(), key=lambda each: -len(each[1])):
        more = ", …" if len(names) > _MOST_NAMES else ""
        yield f"{len(names)} {'task' if len(names) == 1 else 'tasks'}: {', '.join(names[:_MOST_NAMES])}{more}"
        yield from (f"    {line}" for line in stack)
        yield ""


def _awaited(coroutine: object) -> Iterator[str]:
    """Yield where a coroutine waits, and where the coroutines wait that it awaits."""
    for _ in range(_DEEPEST):
        if coroutine is None:
            return
        frame = _first(coroutine, _FRAMES)
        if not isinstance(frame, FrameType):
            yield f"{type(coroutine).__module__}.{type(coroutine).__qualname__}"
            return
        yield _place(frame, frame.f_lineno)
        coroutine = _first(coroutine, _AWAITED)


def _first(awaitable: object, attributes: tuple[str, ...]) -> object:
    """Return the first attribute that is set: the frame of this type of awaitable, or the object that it awaits."""
    return next((value for name in attributes if (value := getattr(awaitable, name, None)) is not None), None)


def _place(frame: FrameType, line: int | None) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({code.co_filename}:{line})"
