# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The way from a process to a server: latency, and what can go wrong with a request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Final

import anyio

from controller_runtime.apis.machinery import errors
from controller_runtime.rest import Request, Response, TransportError, TransportTimeoutError

from . import answers
from .loop import CURRENT, Process
from .server import Server

_PATIENCE: Final = 30.0
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(slots=True)
class Weather:
    """What is wrong with the network, or with the server, just now. Each value is the part of requests concerned."""

    refused: float = 0.0
    """No connection."""
    unavailable: float = 0.0
    """503, 500 or 429 without an effect."""
    pages: float = 0.0
    """A proxy's page in HTML, without an effect."""
    lost: float = 0.0
    """The request takes effect, the answer does not come."""
    late: float = 0.0
    """The answer comes after seconds."""
    garbled: float = 0.0
    """The request takes effect, the answer is cut."""
    conflicts: float = 0.0
    """A write is answered with 409 without an effect, as if another had written in between."""


@dataclass(slots=True)
class Network:
    """All ways to the server."""

    server: Server
    rng: random.Random
    record: Callable[[str, str], None]
    """Takes who does something, and what."""
    weather: Weather = field(default_factory=Weather)
    cut_off: set[str] = field(default_factory=set)
    """Names of processes that reach nothing."""
    slowest: float = 0.005
    """Seconds that a request or an answer takes at most in good weather."""
    home: Context = field(default_factory=copy_context)
    """Where the server's side of a request runs: no process's death ends it."""

    def wire(self, process: Process, user: str, may_write: Callable[[], bool] = lambda: True) -> Wire:
        """Return the way of a process, which asks as ``user``."""
        return Wire(self, process, user, may_write)


class Wire:
    """A RoundTripper from one process to the server."""

    def __init__(self, network: Network, process: Process, user: str, may_write: Callable[[], bool]) -> None:
        self._network = network
        self._process = process
        self._user = user
        self.may_write = may_write
        """Called before each write except those of leases and events, as :class:`rest.layers.Fence` does."""
        self._replica = network.rng.choice(network.server.replicas)

    async def send(self, request: Request) -> Response:
        """Return the server's answer. Raises TransportError when there is none."""
        network, rng, weather = self._network, self._network.rng, self._network.weather
        name = self._process.name
        write = request.method in _WRITES
        if write and not self._is_aside(request) and not self.may_write():
            raise TransportError("this process no longer leads", host="simulation")
        await anyio.sleep(rng.random() * network.slowest)
        if name in network.cut_off:
            await anyio.sleep(request.timeout or _PATIENCE)
            network.record(name, f"{_named(request)} -> no answer")
            raise TransportTimeoutError(f"no answer to {request.method} {request.path}", host="simulation")
        if (answer := self._spoiled(request, rng, weather)) is not None:
            network.record(name, f"{_named(request)} -> {answer.status}")
            return answer
        lost = write and rng.random() < weather.lost
        late = rng.random() * 8.0 if rng.random() < weather.late else 0.0
        task = asyncio.get_running_loop().create_task(
            self._serve(request, late / 2), context=network.home.copy()
        )
        response = await asyncio.shield(task)
        await anyio.sleep(rng.random() * network.slowest + late / 2)
        if lost:
            network.record(name, f"{_named(request)} -> {response.status}, and the answer is lost")
            raise TransportError("the connection broke", host="simulation")
        if isinstance(response, answers.Answer) and write and rng.random() < weather.garbled:
            response = answers.Answer(response.status, response.body[: len(response.body) // 2])
        network.record(name, f"{_named(request)} -> {response.status}")
        return response

    async def _serve(self, request: Request, late: float) -> Response:
        if late:
            await anyio.sleep(late)
        if self._network.rng.random() < 0.02:  # a load balancer's choice
            self._replica = self._network.rng.choice(self._network.server.replicas)
        return await self._network.server.handle(request, self._user, self._replica)

    def _spoiled(self, request: Request, rng: random.Random, weather: Weather) -> answers.Answer | None:
        """Return what another than the server answers. Raises TransportError when nobody does."""
        if rng.random() < weather.refused:
            self._network.record(self._process.name, f"{_named(request)} -> refused")
            raise TransportError("connection refused", host="simulation")
        if rng.random() < weather.pages:
            return answers.page(rng.choice([200, 502, 503]))
        if rng.random() < weather.unavailable:
            code, reason = rng.choice(
                [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooManyRequests")]
            )
            wait = 1.0 if code == 429 else None
            return answers.refusal(
                errors.StatusError("simulated", code=code, reason=reason, retry_after=wait)
            )
        if request.method in ("PUT", "PATCH") and rng.random() < weather.conflicts:
            return answers.refusal(errors.StatusError("simulated", code=409, reason="Conflict"))
        return None

    @staticmethod
    def _is_aside(request: Request) -> bool:
        return "/leases" in request.path or "/events" in request.path


def _named(request: Request) -> str:
    query = {
        k: v for k, v in request.query if k in ("watch", "resourceVersion", "sendInitialEvents", "force")
    }
    shown = "".join(f" {k}={v}" for k, v in query.items())
    return f"{request.method} {request.path}{shown}"


def enter(process: Process) -> Context:
    """Return the context in which a process's tasks run."""
    context = copy_context()
    context.run(CURRENT.set, process)
    return context
