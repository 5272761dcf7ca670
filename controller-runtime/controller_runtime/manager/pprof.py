# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles of the running process over HTTP: stacks, a sampling profile, and the memory that tracemalloc has traced.

A manager serves these profiles with ``Options(pprof_bind_address="127.0.0.1:6060")``. There is no authorization: bind
to loopback.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Final, NamedTuple

import anyio.to_thread
import msgspec

from controller_runtime.serving import Handler, HTTPRequest, HTTPResponse

PREFIX: Final = "/debug/pprof/"
_INDEX: Final = f"""\
{PREFIX}tasks                      stacks of all threads and tasks
{PREFIX}profile?seconds=30&hz=100  a sampling profile: collapsed stacks, or JSON with &format=speedscope
{PREFIX}heap?top=50                the lines that allocated most, if tracemalloc runs (PYTHONTRACEMALLOC=1)
{PREFIX}cmdline                    the command line, separated by NUL
"""
_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"

Stack = tuple[CodeType, ...]
"""The functions of a stack, the outermost first."""
_MOST_NAMES: Final = 5
"""Maximum number of names that are listed for tasks with the same stack."""
_DEEPEST: Final = 200
_FRAMES: Final = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED: Final = ("cr_await", "gi_yieldfrom", "ag_await")


class _Number(NamedTuple):
    """A numeric parameter: its default and its greatest value."""

    name: str
    default: float
    most: float


_SECONDS: Final = _Number("seconds", 30.0, most=300.0)
_HZ: Final = _Number("hz", 100.0, most=1000.0)
_TOP: Final = _Number("top", 50, most=10_000)


class BadQueryError(ValueError):
    """A parameter is not valid. The server answers with 400."""


def routes() -> dict[str, Handler]:
    """Return the handlers by path. Only one sampling profile is taken at a time."""
    return {
        PREFIX: _index,
        f"{PREFIX}cmdline": _cmdline,
        f"{PREFIX}heap": _heap,
        f"{PREFIX}profile": _Profiles().serve,
        f"{PREFIX}tasks": _tasks,
    }


async def _index(request: HTTPRequest) -> HTTPResponse:
    is_index = request.path == PREFIX
    return HTTPResponse.text(_INDEX) if is_index else HTTPResponse.text("404 page not found\n", status=404)


async def _cmdline(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text("\0".join(sys.orig_argv))


async def _tasks(_request: HTTPRequest) -> HTTPResponse:
    """Return the stacks of threads, then those of tasks.

    Tasks with the same stack are counted together, and the most frequent stack is first. In a stack, the innermost call
    is last.
    """
    return HTTPResponse.text("\n".join([*_thread_stacks(), *_task_stacks()]))


async def _heap(request: HTTPRequest) -> HTTPResponse:
    if not tracemalloc.is_tracing():
        text = "tracemalloc is not running: start the process with PYTHONTRACEMALLOC=1\n"
        return HTTPResponse.text(text, status=409)
    try:
        top = int(_number(request, _TOP))
    except BadQueryError as error:
        return HTTPResponse.text(f"{error}\n", status=400)
    return HTTPResponse.text(await anyio.to_thread.run_sync(_allocations, top))


def _allocations(top: int) -> str:
    statistics = tracemalloc.take_snapshot().statistics("lineno")
    total = sum(statistic.size for statistic in statistics)
    lines = [f"{total} bytes in {sum(statistic.count for statistic in statistics)} blocks"]
    lines += [
        f"{statistic.size:>12} {statistic.count:>9} {statistic.traceback[0].filename}:{statistic.traceback[0].lineno}"
        for statistic in statistics[:top]
    ]
    return "\n".join(lines) + "\n"


class _Profiles:
    """Takes profiles, one at a time."""

    def __init__(self) -> None:
        self._busy = False

    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        try:
            seconds = _number(request, _SECONDS)
            hz = _number(request, _HZ)
        except BadQueryError as error:
            return HTTPResponse.text(f"{error}\n", status=400)
        form = (request.query.get("format") or ["collapsed"])[0]
        if form not in {"collapsed", "speedscope"}:
            return HTTPResponse.text("format must be collapsed or speedscope\n", status=400)
        if self._busy:
            return HTTPResponse.text("another profile is being taken\n", status=409)
        stop = threading.Event()
        self._busy = True
        try:
            profile = await anyio.to_thread.run_sync(sample, seconds, hz, stop, abandon_on_cancel=True)
        finally:
            stop.set()
            self._busy = False
        if form == "speedscope":
            return HTTPResponse(body=profile.speedscope(), content_type="application/json")
        return HTTPResponse.text(profile.collapsed())


def _number(request: HTTPRequest, wanted: _Number) -> float:
    text = (request.query.get(wanted.name) or [""])[0]
    try:
        value = float(text) if text else wanted.default
    except ValueError:
        value = 0
    if not 0 < value <= wanted.most:
        raise BadQueryError(f"{wanted.name} must be a number above 0 and at most {wanted.most:g}")
    return value


@dataclass
class Profile:
    """How often each stack of each thread was seen."""

    seconds: float = 0
    """For how long samples were taken."""
    samples: int = 0
    """How many samples were taken."""
    threads: dict[str, Counter[Stack]] = field(default_factory=dict)

    def collapsed(self) -> str:
        """Return a line for each stack, as flame graph tools read it: ``thread;outer;inner count``."""
        lines = [
            ";".join([_text(name), *map(_name, stack)]) + f" {count}"
            for name, stacks in self.threads.items()
            for stack, count in stacks.most_common()
        ]
        return "".join(f"{line}\n" for line in lines)

    def speedscope(self) -> bytes:
        """Return the profile in speedscope's JSON format, which has a separate profile for each thread."""
        frames: dict[CodeType, int] = {}
        weight = self.seconds / self.samples if self.samples else 0
        profiles = [
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": weight * stacks.total(),
                "samples": [[frames.setdefault(code, len(frames)) for code in stack] for stack in stacks],
                "weights": [weight * count for count in stacks.values()],
            }
            for name, stacks in self.threads.items()
        ]
        shared = [
            {"name": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}
            for code in frames
        ]
        return msgspec.json.encode({"$schema": _SCHEMA, "shared": {"frames": shared}, "profiles": profiles})


def sample(seconds: float, hz: float, stop: threading.Event) -> Profile:
    """Return a profile of all threads except the calling one, over ``seconds`` or until ``stop`` is set.

    This function blocks, so call it in a thread. A sample takes tens of microseconds per thread, and blocks other
    Python code.
    """
    profile, own = Profile(), threading.get_ident()
    began = due = time.monotonic()
    while due < began + seconds and not stop.wait(max(0.0, due - time.monotonic())):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                stack = tuple(caller.f_code for caller in _frames_of(frame))
                profile.threads.setdefault(names.get(ident, str(ident)), Counter())[stack] += 1
        profile.samples += 1
        # Overdue samples are left out: the process was too busy for them.
        due = max(due + 1 / hz, time.monotonic())
    profile.seconds = time.monotonic() - began
    return profile


def _name(code: CodeType) -> str:
    folder, _, file = code.co_filename.rpartition("/")
    return _text(f"{code.co_qualname} ({folder.rpartition('/')[2]}/{file}:{code.co_firstlineno})")


def _text(name: str) -> str:
    return name.replace(";", ",").replace("\n", " ")


def _frames_of(frame: FrameType | None) -> list[FrameType]:
    """Return a thread's frames, the outermost first; if there are more than 200, only the innermost 200."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    return frames


def _thread_stacks() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}:"
        yield from (f"    {_place(caller, caller.f_lineno)}" for caller in _frames_of(frame))
        yield ""


def _task_stacks() -> Iterator[str]:
    stacks: dict[tuple[str, ...], list[str]] = {}
    for task in asyncio.all_tasks():
        stacks.setdefault(tuple(_awaited(task.get_coro())), []).append(task.get_name())
    for stack, names in sorted(stacks.items(), key=lambda item: -len(item[1])):
        more = ", …" if len(names) > _MOST_NAMES else ""
        yield f"{len(names)} {'task' if len(names) == 1 else 'tasks'}: {', '.join(names[:_MOST_NAMES])}{more}"
        yield from (f"    {line}" for line in stack)
        yield ""


def _awaited(coroutine: object) -> Iterator[str]:
    """Yield the current line of a coroutine, then the current line of the coroutine that it awaits, and so on."""
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
    """Return the first of ``attributes`` that is set: each type of awaitable has its own names for the same thing."""
    return next((value for name in attributes if (value := getattr(awaitable, name, None)) is not None), None)


def _place(frame: FrameType, line: int | None) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({code.co_filename}:{line})"
