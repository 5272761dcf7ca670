# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Endpoint: the common part of all webhooks: metrics, limits of bodies, and the response to an unreadable body.

A small text may decode to a large object. Therefore, while a large body arrives, we count its maps, lists and items. If
it has more of them than two objects may have, we reject the body at once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from controller_runtime import log, metrics
from controller_runtime.machinery import rawjson
from controller_runtime.serving import HTTPRequest, HTTPResponse

JSON: Final = "application/json"
MAX_BODY: Final = 7 * 1024 * 1024
"""Maximum number of bytes of a body. A review may have two objects of 3 MB, the limit of an API server."""
LARGE: Final = 4 * 1024 * 1024
"""A larger body does not review stored objects: a review has two, and by default etcd stores up to 1.5 MB for each."""
BODY: Final = msgspec.structs.replace(
    rawjson.DEFAULT,
    size=MAX_BODY,
    containers=4 * rawjson.DEFAULT.containers,
    items=4 * rawjson.DEFAULT.items,
    depth=rawjson.DEFAULT.depth + 2,
)
"""The limits of the contents of a body: two objects, and their managedFields, which may be as large as the objects."""

_log = log.logger_from("admission")


class UnreadableError(Exception):
    """A body is not an AdmissionReview, or is too large. ``code`` is the HTTP status of the answer."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class Endpoint(ABC):
    """An HTTP handler at ``path``, with metrics."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log_limiter = log.LineLimiter()
        self._latency = metrics.WEBHOOK_LATENCY.labels(path)
        self._in_flight = metrics.WEBHOOK_IN_FLIGHT.labels(path)
        self._requests = {code: metrics.WEBHOOK_REQUESTS.labels(path, str(code)) for code in (200, 500)}

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one HTTP request."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._in_flight.inc()
        try:
            response = await self.serve(request)
        finally:
            self._in_flight.dec()
        self._latency.observe(clock() - began)
        status = response.status
        (self._requests.get(status) or metrics.WEBHOOK_REQUESTS.labels(self.path, str(status))).inc()
        return response

    @abstractmethod
    async def serve(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one HTTP request. :meth:`__call__` calls this method and measures the time."""

    def unreadable(self, code: int, message: str) -> HTTPResponse:
        """Return a Status as the answer to a request without a review. The API server's user sees the message."""
        if (held_back := self.log_limiter.allow()) is not None:
            _log.error("Bad request", error=message, **held_back)
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": {400: "BadRequest", 413: "RequestEntityTooLarge"}.get(code, HTTPStatus(code).phrase),
            "code": code,
        }
        return HTTPResponse(status=code, body=msgspec.json.encode(status), content_type=JSON)


class BodyInspection:
    """Inspects bodies while they arrive, see :class:`controller_runtime.serving.Inspection`."""

    size = 64 * 1024  # a smaller body cannot exceed a limit

    def begin(self) -> Callable[[bytes], str | None]:
        """Return a function that counts the contents of one body.

        It rejects only bodies of more than :data:`LARGE` bytes. A smaller body may belong to an update of a stored
        object. Users must be able to delete such an object or to change its metadata, however much it contains.
        """
        counter, received, reason = rawjson.Counter(BODY), 0, None

        def inspect(piece: bytes) -> str | None:
            nonlocal received, reason
            received += len(piece)
            reason = reason or counter.feed(piece)
            return reason if received > LARGE else None

        return inspect


def content(request: HTTPRequest) -> bytes:
    """Return the JSON text of a request.

    Raises:
        UnreadableError: the body is too large or empty, or its content type is not JSON.
    """
    if request.body_rejected:
        text = request.refusal or f"limit is {MAX_BODY} bytes"
        raise UnreadableError(f"request entity is too large; {text}", code=413)
    if not request.body:
        raise UnreadableError("request body is empty")
    content_type = request.headers.get("Content-Type", "")
    if content_type != JSON and content_type.partition(";")[0].strip() != JSON:
        given = log.cut(content_type).encode("utf-8", "backslashreplace").decode()
        raise UnreadableError(f"contentType={given}, expected {JSON}")
    return request.body
