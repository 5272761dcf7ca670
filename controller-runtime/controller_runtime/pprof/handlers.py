# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The HTTP handlers of profiles."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from typing import Final, NamedTuple

import anyio.to_thread

from controller_runtime.httpserver import Handler, HTTPRequest, HTTPResponse

from . import sampler, stacks

PREFIX: Final = "/debug/pprof/"
_INDEX: Final = f"""\
{PREFIX}tasks                      stacks of all threads and tasks
{PREFIX}profile?seconds=30&hz=100  a sampling profile: collapsed stacks, or JSON with &format=speedscope
{PREFIX}heap?top=50                the lines that allocated most, where tracemalloc runs (PYTHONTRACEMALLOC=1)
{PREFIX}cmdline                    the command line, separated by NUL
"""


class _Number(NamedTuple):
    """A numeric parameter: its default and its greatest value."""

    name: str
    default: float
    most: float


_SECONDS: Final = _Number("seconds", 30.0, most=300.0)
_HZ: Final = _Number("hz", 100.0, most=1000.0)
_TOP: Final = _Number("top", 50, most=10_000)


class BadQueryError(ValueError):
    """A parameter is not valid; answered with 400."""


def routes() -> dict[str, Handler]:
    """Return the handlers by their paths; one profile is taken at a time."""
    return {
        PREFIX: _index,
        f"{PREFIX}cmdline": _cmdline,
        f"{PREFIX}heap": _heap,
        f"{PREFIX}profile": _Profiles().serve,
        f"{PREFIX}tasks": _tasks,
    }


async def _index(request: HTTPRequest) -> HTTPResponse:
    found = request.path == PREFIX
    return HTTPResponse.text(_INDEX) if found else HTTPResponse.text("404 page not found\n", status=404)


async def _cmdline(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text("\0".join(sys.orig_argv))


async def _tasks(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text(stacks.describe())


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
    total = sum(each.size for each in statistics)
    lines = [f"{total} bytes in {sum(each.count for each in statistics)} blocks"]
    lines += [
        f"{each.size:>12} {each.count:>9} {each.traceback[0].filename}:{each.traceback[0].lineno}"
        for each in statistics[:top]
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
            form = _format(request)
        except BadQueryError as error:
            return HTTPResponse.text(f"{error}\n", status=400)
        if self._busy:
            return HTTPResponse.text("another profile is being taken\n", status=409)
        stop = threading.Event()
        self._busy = True
        try:
            profile = await anyio.to_thread.run_sync(
                sampler.sample, seconds, hz, stop, abandon_on_cancel=True
            )
        finally:
            stop.set()
            self._busy = False
        if form == "speedscope":
            return HTTPResponse(body=profile.speedscope(), content_type="application/json")
        return HTTPResponse.text(profile.collapsed())


def _format(request: HTTPRequest) -> str:
    form = (request.query.get("format") or ["collapsed"])[0]
    if form not in {"collapsed", "speedscope"}:
        raise BadQueryError("format must be collapsed or speedscope")
    return form


def _number(request: HTTPRequest, wanted: _Number) -> float:
    text = (request.query.get(wanted.name) or [""])[0]
    try:
        value = float(text) if text else wanted.default
    except ValueError:
        value = 0
    if not 0 < value <= wanted.most:
        raise BadQueryError(f"{wanted.name} must be a number above 0 and at most {wanted.most:g}")
    return value
