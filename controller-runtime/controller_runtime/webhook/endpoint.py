# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Endpoint: the common part of all webhooks: metrics, and the response to a body that is not a review."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from controller_runtime import log, metrics
from controller_runtime.httpserver import HTTPRequest, HTTPResponse

from . import envelope
from .bounds import MAX_BODY

JSON: Final = "application/json"

_log = log.logger_from("admission")


class Endpoint(ABC):
    """An instrumented HTTP handler at ``path``; ``clock`` measures for the metrics, by default the event loop's."""

    def __init__(self, path: str, *, clock: Callable[[], float] | None = None) -> None:
        self.path = path
        self.lines = log.Sparing()
        """Limits the log lines that requests cause."""
        self._clock = clock
        self._latency = metrics.WEBHOOK_LATENCY.labels(path)
        self._in_flight = metrics.WEBHOOK_IN_FLIGHT.labels(path)
        self._requests = {code: metrics.WEBHOOK_REQUESTS.labels(path, str(code)) for code in (200, 500)}

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Answer one HTTP request."""
        clock = self._clock or asyncio.get_running_loop().time
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
        """Answer one HTTP request; called by :meth:`__call__`, which measures it."""

    def unreadable(self, code: int, message: str) -> HTTPResponse:
        """Return a Status for a request without a review: the API server shows it to its user."""
        if (held_back := self.lines.allow()) is not None:
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


def content(request: HTTPRequest) -> bytes:
    """Return the JSON text of a request.

    Raises:
        UnreadableError: the body is too large, empty or declared as something else.
    """
    if request.too_large:
        text = request.refusal or f"limit is {MAX_BODY} bytes"
        raise envelope.UnreadableError(f"request entity is too large; {text}", code=413)
    if not request.body:
        raise envelope.UnreadableError("request body is empty")
    content_type = request.headers.get("Content-Type", "")
    if content_type != JSON and content_type.partition(";")[0].strip() != JSON:
        given = log.cut(content_type).encode("utf-8", "backslashreplace").decode()
        raise envelope.UnreadableError(f"contentType={given}, expected {JSON}")
    return request.body
