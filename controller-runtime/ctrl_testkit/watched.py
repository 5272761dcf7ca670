# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One collection of an API server in memory: lists, pages, streams and watches, with faults on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec

from controller_runtime.rest import FakeResponse, FakeTransport, Request

END = {"k8s.io/initial-events-end": "true"}


def status(code: int, reason: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}


class Collection:
    """Objects by key; ``faults`` answer the next requests; ``streams`` are the open watches.

    While ``held`` is set, no list ends, neither one in pages nor the beginning of a stream.
    """

    def __init__(self, api_version: str = "v1", kind: str = "ConfigMap") -> None:
        self._names = {"apiVersion": api_version, "kind": kind}
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 10
        self.faults: deque[Callable[[Request], Any] | None] = deque()
        self.streams_lists = True
        self.streams: list[Stream] = []
        self.transport = FakeTransport(self._answer)
        self.held = False

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
        obj = {**self._names, "metadata": metadata, **fields}
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

    def release(self) -> None:
        """End the lists that were held."""
        self.held = False
        self.bookmark(**END)

    async def _answer(self, request: Request) -> FakeResponse:
        if self.faults and (fault := self.faults.popleft()) is not None:
            answer = fault(request)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, FakeResponse) else FakeResponse(answer["code"], answer)
        query = dict(request.query)
        if "watch" not in query:
            if self.held:
                await anyio.sleep_forever()
            return self._page(query)
        if query.get("sendInitialEvents") and not self.streams_lists:
            return FakeResponse(422, status(422, "Invalid", "sendInitialEvents is forbidden"))
        stream = Stream()
        if query.get("sendInitialEvents"):
            for obj in self.objects.values():
                stream.lines.append(msgspec.json.encode({"type": "ADDED", "object": obj}))
            meta = {"resourceVersion": str(self.version), "annotations": END}
            if not self.held:
                stream.lines.append(msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": meta}}))
        self.streams.append(stream)
        return FakeResponse(lines=self._lines(stream))

    async def _lines(self, stream: Stream) -> AsyncIterator[bytes]:
        try:
            async for line in stream.iterate():
                yield line
        finally:
            if stream in self.streams:
                self.streams.remove(stream)

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
