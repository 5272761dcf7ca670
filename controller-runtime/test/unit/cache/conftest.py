# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A small API server in memory, and its caches: lists, pages, streams and watches of one collection, with faults on demand."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import cache
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.rest import FakeResponse, FakeTransport, Request
from controller_runtime.testing.background import start_in_background

END = {"k8s.io/initial-events-end": "true"}


def status(code: int, reason: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}


class Server:
    """Objects by key; ``faults`` answer the next requests; ``streams`` are the open watches."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 10
        self.faults: deque[Callable[[Request], Any] | None] = deque()
        self.streams_lists = True
        self.streams: list[Stream] = []
        self.transport = FakeTransport(self._answer)
        self.heard = Heard()
        self.running: list[asyncio.Task[None]] = []

    async def start(self, **options: Any) -> cache.Cache:
        """Start a cache of the server without jitter, which runs until the test ends."""
        options = {"random": lambda: 0.0, "resync_period": 0.0, **options}
        made = cache.Cache(self.transport, options=cache.Options(**options))
        self.running.append(await start_in_background(made.start))
        return made

    async def watched(self) -> cache.Cache:
        """Return a synced cache of ConfigMaps whose handler is ``heard``."""
        made = await self.start()
        informer = await made.get_informer(ConfigMap)
        informer.add_event_handler(self.heard.handler)
        await made.wait_for_sync(1)
        return made

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(request.query) for request in self.transport.requests]

    def put(
        self, name: str, *, namespace: str = "team-a", silent: bool = False, **fields: Any
    ) -> dict[str, Any]:
        self.version += 1
        old = self.objects.get((namespace, name))
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": fields.pop("uid", old["metadata"]["uid"] if old else f"uid-{name}"),
            "resourceVersion": str(self.version),
            "managedFields": [{"manager": "someone"}],
            **fields.pop("metadata", {}),
        }
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}
        self.objects[namespace, name] = obj
        if not silent:
            self.tell("MODIFIED" if old else "ADDED", obj)
        return obj

    def remove(self, name: str, *, namespace: str = "team-a", silent: bool = False) -> None:
        self.version += 1
        obj = self.objects.pop((namespace, name))
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if not silent:
            self.tell("DELETED", obj)

    def tell(self, type_: str, obj: Any) -> None:
        self.say(msgspec.json.encode({"type": type_, "object": obj}))

    def bookmark(self, **annotations: str) -> None:
        self.tell(
            "BOOKMARK", {"metadata": {"resourceVersion": str(self.version), "annotations": annotations}}
        )

    def say(self, line: bytes) -> None:
        for stream in self.streams:
            stream.lines.append(line)
            stream.news.set()

    def hang_up(self, error: Exception | None = None) -> int:
        """End all watches, and return how many requests there were until now."""
        for stream in self.streams:
            stream.end(error)
        self.streams = []
        return len(self.transport.requests)

    def _answer(self, request: Request) -> FakeResponse:
        if self.faults and (fault := self.faults.popleft()) is not None:
            answer = fault(request)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, FakeResponse) else FakeResponse(answer["code"], answer)
        query = dict(request.query)
        if "watch" not in query:
            return self._page(query)
        if query.get("sendInitialEvents") and not self.streams_lists:
            return FakeResponse(422, status(422, "Invalid", "sendInitialEvents is forbidden"))
        stream = Stream()
        if query.get("sendInitialEvents"):
            for obj in self.objects.values():
                stream.lines.append(msgspec.json.encode({"type": "ADDED", "object": obj}))
            meta = {"resourceVersion": str(self.version), "annotations": END}
            stream.lines.append(msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": meta}}))
        self.streams.append(stream)
        return FakeResponse(lines=stream.iterate())

    def _page(self, query: dict[str, str]) -> FakeResponse:
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(self.objects)
        items = list(self.objects.values())
        metadata: dict[str, Any] = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return FakeResponse(200, {"metadata": metadata, "items": items[start : start + limit]})


class Stream:
    """One open watch."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.news = anyio.Event()
        self.over = False
        self.error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        self.over, self.error = True, error
        self.news.set()

    async def iterate(self) -> AsyncIterator[bytes]:
        while True:
            while self.lines:
                yield self.lines.popleft()
            if self.over:
                if self.error is not None:
                    raise self.error
                return
            self.news = anyio.Event()
            await self.news.wait()


class Heard:
    """The events that a handler received, one line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def handler(self) -> cache.EventHandlerFuncs[Any]:
        return cache.EventHandlerFuncs(
            on_add=lambda obj, initial: self.lines.append(f"add {obj.name}{' initial' if initial else ''}"),
            on_update=lambda old, new: self.lines.append(
                f"update {new.name} {old.metadata.resource_version}->{new.metadata.resource_version}"
            ),
            on_delete=lambda obj, unknown: self.lines.append(
                f"delete {obj.name}{' unknown' if unknown else ''}"
            ),
        )

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Yield a server whose caches run until the test ends."""
    made = Server()
    yield made
    for task in made.running:
        task.cancel()
    await asyncio.wait(made.running) if made.running else None
    for task in made.running:
        if not task.cancelled():
            await task


@pytest.fixture
def start(server: Server) -> Callable[..., Any]:
    """Return the function that starts a cache of the server."""
    return server.start
