# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The network between processes and the server: it delays requests and lets some of them fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Final

import anyio

from controller_runtime.fake import requests
from controller_runtime.machinery import errors
from controller_runtime.rest import (
    CompleteResponse,
    ConnectError,
    Request,
    Response,
    TransportError,
    TransportTimeoutError,
    layers,
)

from .loop import CURRENT_PROCESS, Process
from .server import SimulatedServer

_HOST: Final = "simulation"
_REQUEST_TIMEOUT: Final = 30.0
WRITE_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(slots=True)
class NetworkFaults:
    """The state of the network and of the server. Each value is the fraction of requests that are affected."""

    refused: float = 0.0
    """The connection is refused."""
    unavailable: float = 0.0
    """The answer is 503, 500 or 429, and the request has no effect."""
    pages: float = 0.0
    """The answer is a proxy's page in HTML, and the request has no effect."""
    lost: float = 0.0
    """A write takes effect, but its answer is lost."""
    late: float = 0.0
    """The request and its answer take up to eight seconds."""
    stuck: float = 0.0
    """A write and its answer take 15 to 30 seconds."""
    garbled: float = 0.0
    """The request takes effect, but its answer ends after a random number of bytes."""
    conflicts: float = 0.0
    """A PUT or PATCH has no effect and is answered with 409, as if another client had written in between."""


class Observer:
    """Is called for each request of a manager. The methods of this class do nothing."""

    def sends(self, process: Process, request: Request) -> None:
        """A process sends a request, which has passed the layers above the connection."""

    def arrives(self, process: Process, request: Request) -> None:
        """A request reaches the server. Its process may have ended by then."""

    def answered(self, process: Process, request: Request, response: Response) -> None:
        """An answer reaches the process."""


@dataclass(slots=True)
class Network:
    """The connections of all processes to the server."""

    server: SimulatedServer
    rng: random.Random
    record: Callable[[str, str], None]
    """Adds a line to the timeline; called with an actor and an action."""
    faults: NetworkFaults = field(default_factory=NetworkFaults)
    cut_off: set[str] = field(default_factory=set)
    """Names of processes whose requests do not reach the server."""
    slowest: float = 0.005
    """Maximum seconds that a request or an answer takes without faults."""
    slow: list[Callable[[Request], float]] = field(default_factory=list)
    """Functions that return how many seconds to delay the answer to a request. Their delays are added."""
    observers: list[Observer] = field(default_factory=list)
    home: Context = field(default_factory=copy_context)
    """The context in which the server handles requests, so that the end of a simulated process does not stop the
    handling."""


class SimulatedTransport:
    """A RoundTripper from one process to the server, with the layers of :class:`controller_runtime.rest.Transport`.

    It sends the requests as ``user``.
    """

    def __init__(self, network: Network, process: Process, user: str) -> None:
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before each write whether the manager may send it. Leases and events are written without asking."""
        self.unanswered: Callable[[], None] = lambda: None
        """Called when a write got no answer. Writes of leases and events do not count."""
        self._bare = _Bare(network, process, user)
        self._unfenced, self._fenced = layers.RetryAfter(self._bare), layers.RetryAfter(_Fence(self))

    async def send(self, request: Request) -> Response:
        """Return the server's answer. Raises TransportError if no answer arrives."""
        return await (self._fenced if is_fenced_write(request) else self._unfenced).send(request)


class _Fence:
    """Sends a write as the transport of a real server does: only if it is allowed, and notes that it got no answer."""

    def __init__(self, transport: SimulatedTransport) -> None:
        self._transport = transport

    async def send(self, request: Request) -> Response:
        transport = self._transport
        if not transport.may_write():
            raise layers.not_sent(request, _HOST)
        try:
            return await transport._bare.send(request)
        except ConnectError:
            raise
        except (asyncio.CancelledError, TransportError):
            transport.unanswered()
            raise


class _Bare:
    """The connection below the layers."""

    def __init__(self, network: Network, process: Process, user: str) -> None:
        self._network = network
        self._process = process
        self._user = user
        self._replica = network.rng.choice(network.server.replicas)

    async def send(self, request: Request) -> Response:
        network, rng, faults = self._network, self._network.rng, self._network.faults
        name = self._process.name
        write = request.method in WRITE_METHODS
        for observer in network.observers:
            observer.sends(self._process, request)
        if name in network.cut_off:
            await anyio.sleep(request.timeout or _REQUEST_TIMEOUT)
            network.record(name, f"{_named(request)} -> no answer")
            raise TransportTimeoutError(f"no answer to {request.method} {request.path}", host=_HOST)
        if (answer := self._spoiled(request, rng, faults)) is not None:
            network.record(name, f"{_named(request)} -> {answer.status}")
            for observer in network.observers:
                observer.answered(self._process, request, answer)
            return answer
        lost = write and rng.random() < faults.lost
        late = rng.random() * 8.0 if rng.random() < faults.late else 0.0
        if write and faults.stuck and rng.random() < faults.stuck:
            late = rng.uniform(0.5, 1.0) * _REQUEST_TIMEOUT
        there, back = (rng.random() * network.slowest + late / 2 for _ in range(2))
        response = await self._travel(request, there, back + sum(delay(request) for delay in network.slow))
        if lost:
            network.record(name, f"{_named(request)} -> {response.status}, and the answer is lost")
            raise TransportError("the connection broke", host=_HOST)
        if isinstance(response, CompleteResponse) and rng.random() < faults.garbled:
            response = CompleteResponse(response.status, response.body[: rng.randrange(len(response.body))])
        network.record(name, f"{_named(request)} -> {response.status}")
        for observer in network.observers:
            observer.answered(self._process, request, response)
        return response

    async def _travel(self, request: Request, there: float, back: float) -> Response:
        """Send a request and return the answer. The request takes ``there`` seconds, the answer takes ``back`` seconds.

        Once sent, a request reaches the server even if its process is killed or paused, or stops waiting for the
        answer.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Response] = loop.create_future()

        def arrive() -> None:
            if self._network.server.may_wait(request):
                loop.create_task(self._served(request), context=home.copy()).add_done_callback(
                    lambda task: send_back(task.result())
                )
            else:
                self._arrived(request)
                send_back(self._network.server.handle_at_once(request, self._user, self._replica))

        def send_back(response: Response) -> None:
            loop.call_later(back, receive, response, context=home)

        def receive(response: Response) -> None:
            if not answered.done():
                answered.set_result(response)

        home = self._network.home
        loop.call_later(there, arrive, context=home)
        return await answered

    async def _served(self, request: Request) -> Response:
        """Handle a request that has reached the server, and return the answer."""
        self._arrived(request)
        return await self._network.server.handle(request, self._user, self._replica)

    def _arrived(self, request: Request) -> None:
        if self._network.rng.random() < 0.02:  # a load balancer's choice
            self._replica = self._network.rng.choice(self._network.server.replicas)
        for observer in self._network.observers:
            observer.arrives(self._process, request)

    def _spoiled(
        self, request: Request, rng: random.Random, faults: NetworkFaults
    ) -> CompleteResponse | None:
        """Return the answer that a fault causes, or None if the server must answer.

        Raises TransportError if a fault refuses the connection.
        """
        if rng.random() < faults.refused:
            self._network.record(self._process.name, f"{_named(request)} -> refused")
            raise TransportError("connection refused", host=_HOST)
        if rng.random() < faults.pages:
            return requests.proxy_error_page(rng.choice([200, 502, 503]))
        if rng.random() < faults.unavailable:
            code, reason = rng.choice(
                [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooManyRequests")]
            )
            wait = 1.0 if code == 429 else None
            return requests.refusal(
                errors.StatusError("simulated", code=code, reason=reason, retry_after=wait)
            )
        if request.method in ("PUT", "PATCH") and rng.random() < faults.conflicts:
            return requests.refusal(errors.StatusError("simulated", code=409, reason="Conflict"))
        return None


def is_fenced_write(request: Request) -> bool:
    """Return True for a write that only a leader may send: all writes except those of leases and events."""
    return request.method in WRITE_METHODS and "/leases" not in request.path and "/events" not in request.path


def _named(request: Request) -> str:
    named = ("watch", "resourceVersion", "sendInitialEvents", "force")
    shown = "".join(f" {k}={v}" for k, v in dict(request.query).items() if k in named)
    return f"{request.method} {request.path}{shown}"


def enter(process: Process) -> Context:
    """Return the context in which a process's tasks run."""
    context = copy_context()
    context.run(CURRENT_PROCESS.set, process)
    return context
