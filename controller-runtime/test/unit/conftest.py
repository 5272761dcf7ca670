# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An in-memory API server: objects of any kind for a real cache to watch, and kinds that are rejected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object, Struct
from controller_runtime.rest import FakeResponse, FakeTransport, Request
from ctrl_testkit.unit_tests import *  # noqa: F403 fixtures and hooks

END = {"k8s.io/initial-events-end": "true"}


class World:
    """An API server that answers with streaming lists.

    A kind is served unless it is in ``refused``, with the status code of the answers, or in ``held``: then its list
    does not end before ``release``.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[type[Object], str, str], Object] = {}
        self.refused: dict[type[Object], int] = {}
        self.held: set[type[Object]] = set()
        self.version = 0
        self.transport = FakeTransport(self._answer)
        self._streams: list[tuple[str, list[bytes], anyio.Event]] = []

    @asynccontextmanager
    async def cache(self, options: cache.Options | None = None) -> AsyncIterator[cache.Cache]:
        """Run a cache of this server, without jitter unless ``options`` are given."""
        made = cache.Cache(self.transport, options=options or cache.Options(random=lambda: 0.0))
        async with anyio.create_task_group() as tasks:
            await tasks.start(made.start)
            yield made
            tasks.cancel_scope.cancel()

    def put(self, obj: Object) -> None:
        """Create or change an object."""
        self.version += 1
        obj = obj.deep_copy()
        obj.metadata.resource_version = str(self.version)
        obj.metadata.uid = f"uid-{obj.key}"
        key = (type(obj), *obj.key)
        event = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = obj
        self._tell(obj, event)

    def remove(self, obj: Object) -> None:
        """Delete an object."""
        self.version += 1
        gone = self.objects.pop((type(obj), *obj.key))
        gone.metadata.resource_version = str(self.version)
        self._tell(gone, "DELETED")

    def release(self, kind: type[Object]) -> None:
        """End the list of a kind that was held."""
        self.held.remove(kind)
        for path, lines, news in self._streams:
            if path == _path(kind):
                lines.append(self._end())
                news.set()

    def watched(self) -> list[str]:
        """Return the plural names of the kinds with an open watch, once per watch."""
        return sorted(path.rpartition("/")[2] for path, _, _ in self._streams)

    def _end(self) -> bytes:
        metadata = {"resourceVersion": str(self.version), "annotations": END}
        return _line("BOOKMARK", {"metadata": metadata})

    def _tell(self, obj: Object, event: str) -> None:
        for path, lines, news in self._streams:
            if path == _path(type(obj)):
                lines.append(_line(event, obj.to_dict()))
                news.set()

    async def _answer(self, request: Request) -> FakeResponse:
        for kind, code in self.refused.items():
            if _path(kind) == request.path:
                return FakeResponse(
                    code, {"kind": "Status", "status": "Failure", "code": code, "message": "refused"}
                )
        if request.path == "/version":
            return FakeResponse(200, {})
        query = dict(request.query)
        if "watch" not in query:
            await (
                anyio.sleep_forever()
            )  # a cache lists a kind without a stream only if it is held; such a list is held too
        return FakeResponse(lines=self._stream(request.path, initial="sendInitialEvents" in query))

    async def _stream(self, path: str, *, initial: bool) -> AsyncIterator[bytes]:
        lines: list[bytes] = []
        stream = (path, lines, anyio.Event())
        if initial:
            lines += [
                _line("ADDED", o.to_dict()) for (kind, *_), o in self.objects.items() if _path(kind) == path
            ]
            if not any(_path(kind) == path for kind in self.held):
                lines.append(self._end())
        self._streams.append(stream)
        try:
            while True:
                while lines:
                    yield lines.pop(0)
                news = anyio.Event()
                self._streams[self._streams.index(stream)] = stream = (path, lines, news)
                await news.wait()
        finally:
            self._streams.remove(stream)


def _path(kind: type[Object]) -> str:
    assert kind.resource is not None
    group, version, plural, _ = kind.resource
    return f"/apis/{group}/{version}/{plural}" if group else f"/api/{version}/{plural}"


def _line(event: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": event, "object": obj})


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_pod() -> Callable[..., Pod]:
    def make(name: str, *, namespace: str = "ns", **metadata: Any) -> Pod:
        return Pod.from_dict({"metadata": {"name": name, "namespace": namespace, **metadata}})

    return make


@pytest.fixture
def settle() -> Callable[[], Awaitable[None]]:
    """Return a function that lets all ready tasks run while the virtual clock advances by a microsecond."""

    async def settled() -> None:
        await anyio.sleep(1e-6)

    return settled


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of each JSON text that is decoded to a model."""
    sizes: list[int] = []
    decode = Struct.from_json.__func__  # type: ignore[attr-defined]  # the plain function that the class method wraps

    def noting(cls: type[Struct], data: bytes | str) -> Any:
        sizes.append(len(data))
        return decode(cls, data)

    monkeypatch.setattr(Struct, "from_json", classmethod(noting))
    return sizes
