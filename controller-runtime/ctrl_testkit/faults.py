# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of faults: an API server that may be broken, and a proxy that breaks the connections to it."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web
from yarl import URL

from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, PlainProgress
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.rest import Config, RESTMapper, Transport
from controller_runtime.testing.background import start_in_background
from controller_runtime.testing.pytest_envtest import running

NAMESPACE = unstructured(GVK("", "v1", "Namespace"))
_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive", "host"}
_AUDITED: dict[str, Any] = {
    "verbs": ["create", "update", "patch", "delete"],
    "resources": [{"group": ""}, {"group": "coordination.k8s.io"}],
}


def audit_flags(log: Path, **requests: Any) -> list[str]:
    """Return the flags of an API server that writes the requests of an audit rule into a log at once."""
    policy = log.with_name("policy.json")
    rules = [{"level": "Metadata", **requests}, {"level": "None"}]
    head = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    policy.write_text(json.dumps({**head, "rules": rules}))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]


def audited(log: Path) -> list[dict[str, Any]]:
    """Return the entries of an audit log, of which the last line may be half written."""
    return [json.loads(line) for line in log.read_text().rpartition("\n")[0].splitlines()]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A request that the proxy received."""

    at: float
    method: str
    path: str
    query: frozenset[str]
    agent: str


class Proxy:
    """Stands between a client and the API server, speaks plain HTTP to the client, and misbehaves on request.

    ``freeze`` leaves connections open without passing anything on, and ``cut`` breaks them. Attributes with functions
    cause other faults: ``refuse`` answers in the server's place, ``hold`` returns True for requests that must never
    reach the server, ``rewrite`` changes the pieces of answers, and ``route`` returns the server for a request.
    ``answered`` is called with each request that the server has answered, before the client gets the answer. Lists
    record what happened: ``seen`` contains the requests, ``answers`` the requests with their status codes, and
    ``expired`` the requests that got a 410, either as their answer or in a watch. If the server is away, the client's
    connection closes without an answer.
    """

    def __init__(self, target: Config) -> None:
        self.seen: list[Seen] = []
        self.answers: list[tuple[Seen, int]] = []
        self.refuse: Callable[[], web.Response] | None = None
        self.hold: Callable[[Seen], bool] | None = None
        self.answered: Callable[[Seen], None] | None = None
        self.rewrite: Callable[[bytes], bytes] | None = None
        self.route: Callable[[Seen], Config] | None = None
        self.blackhole = False
        self.expired: list[Seen] = []
        self._target = target
        self._open: dict[asyncio.BaseTransport, Seen] = {}
        self._frozen: set[asyncio.BaseTransport] = set()
        self.url = ""

    @property
    def config(self) -> Config:
        """The client configuration of an administrator who connects through this proxy."""
        return Config(self.url)

    def freeze(self, *, new: bool = False) -> None:
        """Stop passing on data on the open connections and, with ``new``, also on later connections."""
        self._frozen |= self._open.keys()
        self.blackhole = new

    def cut(self, *, watches: bool = False) -> None:
        """Break all connections, or with ``watches`` only those whose last request was a watch."""
        for transport, last in list(self._open.items()):
            if isinstance(transport, asyncio.Transport) and (not watches or "watch" in last.query):
                transport.abort()

    async def run(self, *, task_status: Any) -> None:
        """Serve until cancelled."""
        assert self._target.tls is not None
        self._tls = self._target.tls.ssl_context()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            runner = web.ServerRunner(
                web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
            )
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            try:
                task_status.started()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    self.cut()
                    await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None or transport.is_closing():
            return web.Response(status=502)  # the connection was cut meanwhile
        agent = request.headers.get("User-Agent", "")
        seen = Seen(anyio.current_time(), request.method, request.path, frozenset(request.query), agent)
        self.seen.append(seen)
        self._open[transport] = seen
        await self._pass(transport)
        if self.hold is not None and self.hold(seen):
            await anyio.sleep_forever()
        if self.refuse is not None:
            return self.refuse()
        response = web.StreamResponse()
        try:
            target = self._target if self.route is None else self.route(seen)
            async with self._session.request(
                request.method,
                URL(target.host + request.raw_path, encoded=True),
                data=io.BytesIO(await request.read()) if request.body_exists else None,
                headers={key: value for key, value in request.headers.items() if key.lower() not in _HOP},
                ssl=self._tls,
            ) as upstream:
                self.answers.append((seen, upstream.status))
                if self.answered is not None:
                    self.answered(seen)
                response.set_status(upstream.status)
                response.headers.extend(
                    {key: value for key, value in upstream.headers.items() if key.lower() not in _HOP}
                )
                try:
                    await self._pass(transport)
                    await response.prepare(request)
                    async for chunk in upstream.content.iter_any():
                        await self._pass(transport)
                        if b'"code":410' in chunk:
                            self.expired.append(seen)
                        await response.write(chunk if self.rewrite is None else self.rewrite(chunk))
                    await response.write_eof()
                finally:
                    # The answer was not read to its end. Closing TLS gracefully could take longer than the loop runs.
                    if upstream.connection is not None and upstream.connection.transport is not None:
                        upstream.connection.transport.abort()
        except (aiohttp.ClientError, OSError):
            transport.abort()
        return response

    async def _pass(self, transport: asyncio.BaseTransport) -> None:
        if self.blackhole or transport in self._frozen:
            await anyio.sleep_forever()


@pytest.fixture(scope="session")
def outage_seconds() -> float:
    """How long outages last: short by default; ``FAULT_SECONDS=30`` sets a realistic time."""
    return float(os.environ.get("FAULT_SECONDS", "8"))


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
def control_plane(audit_log: Path) -> Iterator[Environment]:
    """An API server only for the tests of faults, because its crashes must not affect other tests."""
    flags = audit_flags(audit_log, **_AUDITED)
    environment = Environment(api_server_flags=flags, progress=PlainProgress(sys.stderr))
    with running(environment):
        yield environment


@pytest.fixture
def writes(audit_log: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that reads the finished writes to core objects and leases of a namespace from the audit log.

    The writes are in the order in which the server received them.
    """

    def read(namespace: str) -> list[dict[str, Any]]:
        mine = [
            entry for entry in audited(audit_log) if entry.get("objectRef", {}).get("namespace") == namespace
        ]
        return sorted(mine, key=lambda entry: str(entry["requestReceivedTimestamp"]))

    return read


@pytest.fixture
async def client(control_plane: Environment) -> AsyncIterator[LiveClient]:
    """An administrator's client that does not use the proxy."""
    async with Transport(control_plane.config) as transport:
        yield LiveClient(transport, RESTMapper(transport))


@pytest.fixture
async def namespace(client: LiveClient) -> str:
    name = f"fault-{secrets.token_hex(4)}"
    await client.create(NAMESPACE.from_dict({"metadata": {"name": name}}))
    return name


@pytest.fixture
async def new_proxy(control_plane: Environment) -> AsyncIterator[Callable[..., Awaitable[Proxy]]]:
    """Return a function that makes proxies to the API server or another ``target``; they run until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    async def make(target: Config | None = None) -> Proxy:
        made = Proxy(target or control_plane.config)
        tasks.append(await start_in_background(made.run))
        return made

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def proxy(new_proxy: Callable[..., Awaitable[Proxy]]) -> Proxy:
    return await new_proxy()
