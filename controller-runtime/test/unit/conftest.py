# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An in-memory API server: objects of any kind for a real cache to watch, and kinds that are rejected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from controller_runtime import cache
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object, Struct
from controller_runtime.rest import FakeResponse, FakeTransport, Request, Response
from ctrl_testkit.unit_tests import *  # noqa: F403 fixtures and hooks
from ctrl_testkit.watched import Collection


class World:
    """An API server with a collection of each kind.

    A kind is served unless it is in ``refused``, with the status code of the answers, or in ``held``: then its list
    does not end before ``release``.
    """

    def __init__(self) -> None:
        self.refused: dict[type[Object], int] = {}
        self.held: set[type[Object]] = set()
        self.transport = FakeTransport(self._answer)
        self._served: dict[str, Collection] = {}

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
        fields = obj.to_dict()
        names = fields.pop("apiVersion"), fields.pop("kind")
        served = self._served.setdefault(_path(type(obj)), Collection(*names))
        served.put(obj.name, namespace=obj.namespace, uid=f"uid-{obj.key}", **fields)

    def remove(self, obj: Object) -> None:
        """Delete an object."""
        self._served[_path(type(obj))].remove(obj.name, namespace=obj.namespace)

    def release(self, kind: type[Object]) -> None:
        """End the list of a kind that was held."""
        self.held.remove(kind)
        self._served[_path(kind)].release()

    def watched(self) -> list[str]:
        """Return the plural names of the kinds with an open watch, once per watch."""
        return sorted(
            path.rpartition("/")[2] for path, served in self._served.items() for _ in served.streams
        )

    async def _answer(self, request: Request) -> Response:
        for kind, code in self.refused.items():
            if _path(kind) == request.path:
                return FakeResponse(
                    code, {"kind": "Status", "status": "Failure", "code": code, "message": "refused"}
                )
        if request.path == "/version":
            return FakeResponse(200, {})
        served = self._served.setdefault(request.path, Collection())
        served.held = any(_path(kind) == request.path for kind in self.held)
        return await served.transport.send(request)


def _path(kind: type[Object]) -> str:
    assert kind.resource is not None
    group, version, plural, _ = kind.resource
    return f"/apis/{group}/{version}/{plural}" if group else f"/api/{version}/{plural}"


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
