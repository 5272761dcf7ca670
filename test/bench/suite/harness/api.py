# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A client that costs little: it sends bodies unchanged, and decodes only metadata and conditions of watch events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import msgspec
from controller_runtime import rest
from controller_runtime.rest import request as requests

AT_ONCE: Final = 32
MERGE: Final = "application/merge-patch+json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PATIENCE: Final = 300.0

Item = TypeVar("Item", bound=Hashable)


class Done(NamedTuple):
    """The time at which a step was done, on the clock of ``time.perf_counter``, and the seconds that it took."""

    at: float
    took: float


class Condition(msgspec.Struct):
    """A condition of an object."""

    type: str
    status: str = ""


class Status(msgspec.Struct):
    """The part of a status that is decoded."""

    conditions: list[Condition] = []


class Metadata(msgspec.Struct, rename="camel"):
    """The part of the metadata that is decoded."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Told(msgspec.Struct):
    """An object of a watch event."""

    metadata: Metadata
    status: Status = msgspec.field(default_factory=Status)

    def has(self, condition: str) -> bool:
        """Return True if a condition is true."""
        return any(each.type == condition and each.status == "True" for each in self.status.conditions)


class _Event(msgspec.Struct):
    type: str
    object: Told


_EVENTS: Final = msgspec.json.Decoder(_Event)


class Api:
    """Sends requests to the API server as its administrator."""

    def __init__(self, transport: rest.Transport) -> None:
        self._transport = transport

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = requests.JSON,
        allowed: tuple[int, ...] = (),
        query: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Return the body of the answer; ``body`` is bytes, or a value that is encoded as JSON.

        Raises:
            StatusError: the server answered with an error whose code is not ``allowed``.
        """
        payload = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {"Accept": requests.JSON, "Content-Type": content}
        request = requests.Request(method, path, tuple(query.items()), headers, payload, timeout=_PATIENCE)
        response = await self._transport.send(request)
        if response.status not in allowed:
            await response.raise_for_status()
        return await response.read()

    async def read(self, path: str, **query: str) -> Any:
        """Return the decoded answer to a GET."""
        return msgspec.json.decode(await self.send("GET", path, query=query))

    def patching(self, path: str, body: Any, **query: str) -> Callable[[str], Awaitable[None]]:
        """Return a step that merges ``body`` into the object whose name it is called with, at ``{}`` in ``path``."""
        payload = msgspec.json.encode(body)

        async def patch(name: str) -> None:
            await self.send("PATCH", path.replace("{}", name), payload, content=MERGE, query=query)

        return patch

    def posting(self, path: str, make: Callable[[str], Any]) -> Callable[[str], Awaitable[None]]:
        """Return a step that creates the object that ``make`` returns for a name."""

        async def post(name: str) -> None:
            await self.send("POST", path, make(name))

        return post

    async def version(self, path: str) -> str:
        """Return the current resourceVersion of a collection."""
        return str((await self.read(path, limit="1"))["metadata"]["resourceVersion"])

    async def count(self, path: str) -> int:
        """Return the number of objects in a collection, which may be too large to be listed in one response."""
        first = await self.read(path, limit="1")
        return len(first["items"]) + int(first["metadata"].get("remainingItemCount", 0))

    async def wipe(self, *paths: str) -> None:
        """Delete all objects of collections, and return when they are empty; one that is not served counts as empty."""
        for path in paths:
            while True:
                body = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
                # In pages: the response contains all deleted objects, and is limited to 16 MiB.
                await self.send("DELETE", path, body, query={"limit": "200"}, allowed=(404, 405, 500, 504))
                answer = msgspec.json.decode(
                    await self.send("GET", path, query={"limit": "1"}, allowed=(404,))
                )
                if not answer.get("items"):
                    break
                await anyio.sleep(0.1)

    @asynccontextmanager
    async def watching(
        self,
        path: str,
        names: Iterable[str],
        wanted: Callable[[Told], bool] = lambda _: True,
        *,
        metadata: bool = True,
    ) -> AsyncIterator[Watch]:
        """Watch a collection during the body, to record when it first reports each of ``names`` in the wanted form."""
        watch = Watch(self._transport, path, set(names), wanted, await self.version(path), metadata=metadata)
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch.follow)
            yield watch
            tasks.cancel_scope.cancel()


class Watch:
    """A watch that records the time at which it first reports each name in the wanted form."""

    def __init__(
        self,
        transport: rest.Transport,
        path: str,
        names: set[str],
        wanted: Callable[[Told], bool],
        version: str,
        *,
        metadata: bool,
    ) -> None:
        self.seen: dict[str, float] = {}
        self._transport = transport
        self._path = path
        self._missing = names
        self._wanted = wanted
        self._version = version
        self._accept = _METADATA if metadata else requests.JSON
        self._complete = anyio.Event()

    async def all(self) -> dict[str, float]:
        """Wait until all names were seen; return the time of each."""
        await self._complete.wait()
        return self.seen

    async def follow(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Read events until all names were seen; if the server ends the stream, watch again from its last version."""
        started = False
        while self._missing:
            query = (("watch", "1"), ("resourceVersion", self._version))
            response = await self._transport.send(
                requests.Request("GET", self._path, query, {"Accept": self._accept}, stream=True)
            )
            await response.raise_for_status()
            if not started:
                started = True
                task_status.started()
            try:
                async for line in response.lines():
                    if self._take(line):
                        break
            finally:
                await response.close()
        if not started:
            task_status.started()
        self._complete.set()

    def _take(self, line: bytes) -> bool:
        """Process an event; return True if all names have been seen."""
        now = time.perf_counter()
        event = _EVENTS.decode(line)
        if event.type == "ERROR":
            raise RuntimeError(f"the watch of {self._path} fell behind: {line[:300]!r}")
        about = event.object.metadata
        self._version = about.resource_version
        if about.name in self._missing and event.type != "DELETED" and self._wanted(event.object):
            self._missing.discard(about.name)
            self.seen[about.name] = now
        return not self._missing


async def each(
    items: Iterable[Item], step: Callable[[Item], Awaitable[object]], *, at_once: int = AT_ONCE
) -> dict[Item, Done]:
    """Call ``step`` for every item, at most ``at_once`` at the same time; return the time of each item."""
    todo, done = iter(list(items)), {}

    async def work() -> None:
        for item in todo:
            began = time.perf_counter()
            await step(item)
            now = time.perf_counter()
            done[item] = Done(now, now - began)

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
    return done


async def at_rate(
    items: Iterable[Item], step: Callable[[Item], Awaitable[object]], rate: float
) -> dict[Item, Done]:
    """Begin ``step`` for ``rate`` items a second, whether or not earlier ones are done; return the time of each item."""
    done: dict[Item, Done] = {}
    start = time.perf_counter()

    async def one(item: Item, at: float) -> None:
        await anyio.sleep(max(0.0, start + at - time.perf_counter()))
        began = time.perf_counter()
        await step(item)
        now = time.perf_counter()
        done[item] = Done(now, now - began)

    async with anyio.create_task_group() as tasks:
        for number, item in enumerate(items):
            tasks.start_soon(one, item, number / rate)
    return done
