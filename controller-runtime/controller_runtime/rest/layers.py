# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RoundTripper and Response, the interface between requests and the network, and the layers before the connections.

Every request passes the layers on its way to the server; each is a round tripper around the next:

``Authorize`` (adds credentials; retries once after a 401) → ``RetryAfter`` (retries after the delay that the
server requests) → ``Meter`` (counts responses) → ``Warn`` (logs the server's warnings) → ``Throttle`` (limits the
rate).
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import msgspec

from controller_runtime import fairness, log
from controller_runtime.machinery.tokenbucket import TokenBucket

from . import errors
from .credentials import Credentials
from .request import Request

if TYPE_CHECKING:
    from prometheus_client import Counter

MAX_RETRIES: Final = 10
MAX_WARNINGS: Final = 1000
UNTOLD_WAIT: Final = 5.0
"""Seconds that a request may wait for retries before a line in the log says so."""
_LONGEST_WARNING: Final = 256
_LONGEST_SHOWN: Final = 256
_JSON: Final = {"Content-Type": "application/json"}
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_log: Final = log.logger_from("rest")


class Response(ABC):
    """A response whose head has arrived.

    For an ordinary request, the body is complete, too. For a stream, the body arrives while it is read. Close a stream
    after use; closing twice, or closing a complete response, does nothing.
    """

    status: int
    headers: Mapping[str, str]
    host: str = ""
    """The server's address for errors, without a password; empty if there is no network."""

    @abstractmethod
    async def read(self) -> bytes:
        """Return the whole body."""

    @abstractmethod
    def lines(self) -> AsyncIterator[bytes]:
        """Yield the body's lines without line ends; the last line of the body may have no line end.

        Raises:
            TransportError: the connection broke.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release the connection."""

    async def raise_for_status(self, *, media_type: str = "json") -> None:
        """Return if the request succeeded; otherwise close the response and raise.

        A successful response may lack a media type. If it has one, this must contain ``media_type``, written in lower
        case. Pass another ``media_type`` for responses that are not JSON, such as logs of pods.

        Raises:
            StatusError: the status code is 400 or more.
            AnswerError: the status code is below 400 but not 2xx, or the response has another media type.
        """
        if self.status >= 400:
            try:
                body = await self.read()
            finally:
                await self.close()
            raise errors.status_error(self.status, self.headers, body, host=self.host)
        content_type = self.headers.get("Content-Type", "")
        if 200 <= self.status < 300 and (not content_type or media_type in content_type.lower()):
            return
        await self.close()
        if 200 <= self.status < 300:
            wanted = "JSON" if media_type == "json" else media_type
            raise errors.AnswerError(
                f"the response is of type {content_type[:_LONGEST_SHOWN]!r}, not {wanted}"
            )
        location = self.headers.get("Location", "")[:_LONGEST_SHOWN]
        raise errors.AnswerError(
            f"the response has status {self.status} and is not from the Kubernetes API"
            + (f"; it redirects to {location!r}" if location else "")
        )


class CompleteResponse(Response):
    """A response with its whole body, which is JSON unless ``headers`` say otherwise."""

    def __init__(
        self, status: int, body: bytes, headers: Mapping[str, str] = _JSON, *, host: str = ""
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.host = host

    async def read(self) -> bytes:
        return self.body

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self.body.splitlines():
            yield line

    async def close(self) -> None:
        return None


class RoundTripper(Protocol):
    """Sends requests to one server.

    A round tripper may have the attribute ``over_network``. If it is True, a manager with this transport reports code
    that blocks the event loop, as it does with a transport of its own.
    """

    async def send(self, request: Request) -> Response:
        """Return the server's response, regardless of its status.

        Raises:
            TransportError: no complete response was received.
        """


Observe = Callable[[str, str, str], None]
"""Called after each attempt with the status code, method and host. The code is ``<error>`` if there was no response."""


@lru_cache(maxsize=64)
def _counter(code: str, method: str, host: str) -> Counter:
    from controller_runtime import metrics  # slow to load, and programs that serve no metrics need not count

    return metrics.REST_REQUESTS.labels(code, method, host)


def count(code: str, method: str, host: str) -> None:
    """Count an attempt in ``rest_client_requests_total``."""
    _counter(code, method, host).inc()


class Meter:
    """Calls ``observe`` with the outcome of each attempt."""

    def __init__(self, inner: RoundTripper, host: str, observe: Observe) -> None:
        self._inner = inner
        self._host = host
        self._observe = observe

    async def send(self, request: Request) -> Response:
        """Send ``request`` and report the outcome."""
        try:
            response = await self._inner.send(request)
        except errors.TransportError:
            self._observe("<error>", request.method, self._host)
            raise
        self._observe(str(response.status), request.method, self._host)
        return response


class Authorize:
    """Adds the credentials. After a 401, renews the credentials and retries once if they changed."""

    def __init__(self, inner: RoundTripper, credentials: Credentials, host: str) -> None:
        self._inner = inner
        self._credentials = credentials
        self._host = host
        self._renewing = anyio.Lock()

    async def send(self, request: Request) -> Response:
        """Send ``request`` with the current credentials."""
        used = await self._headers()
        response = await self._inner.send(_with_headers(request, used) if used else request)
        if response.status != 401:
            return response
        async with self._renewing:
            # Of several requests refused at the same time, the first renews the credentials for all.
            renewed = await self._headers()
            if renewed == used:
                try:
                    changed = await self._credentials.refresh()
                except errors.ConfigError:
                    changed = False
                if not changed:
                    return response
                renewed = await self._headers()
        await response.close()
        return await self._inner.send(_with_headers(request, renewed) if renewed else request)

    async def _headers(self) -> dict[str, str]:
        try:
            return await self._credentials.headers()
        except errors.ConfigError as error:
            raise errors.TransportError(str(error), host=self._host) from error


class RetryAfter:
    """Retries a 429 or 5xx after the delay in its Retry-After header, as client-go does.

    Streams are not retried: their caller decides when to reconnect. If a request waits for more than five seconds in
    total, one line in the log names the request and the server's reason, e.g. a disruption budget.
    """

    def __init__(self, inner: RoundTripper, *, max_retries: int = MAX_RETRIES) -> None:
        self._inner = inner
        self._max_retries = max_retries
        self._lines = log.LineLimiter()

    async def send(self, request: Request) -> Response:
        """Send ``request``. While the response requests a delay, send it again, at most ``max_retries`` times."""
        retries, wait = 0, 0.0
        while True:
            response = await self._inner.send(request)
            if request.stream or (response.status != 429 and response.status < 500):
                return response
            delay = errors.parse_retry_after(response.headers.get("Retry-After"))
            if delay is None:
                return response
            if wait <= UNTOLD_WAIT < wait + delay:
                await self._tell(request, response, wait + delay)
            wait += delay
            # We wait after the last attempt, too: the caller's next request, for whatever object, must not reach the
            # busy server earlier than the server asked for.
            await anyio.sleep(delay)
            if retries == self._max_retries:
                # The delay has passed, so the returned header says 0: the caller must not wait a second time.
                others = {k: v for k, v in response.headers.items() if k.lower() != "retry-after"}
                response.headers = {**others, "Retry-After": "0"}
                return response
            retries += 1
            await response.close()

    async def _tell(self, request: Request, response: Response, wait: float) -> None:
        """Log that a request waits, and for what."""
        if (held_back := self._lines.allow()) is None:
            return
        error = errors.status_error(
            response.status, response.headers, await response.read(), host=response.host
        )
        causes = (str(cause.get("message") or "") for cause in error.causes)
        reason = log.cut(" ".join(filter(None, (error.message, *causes))))
        _log.warning(
            "Request waits because the API server asks to retry it later",
            method=request.method,
            path=request.path,
            status=response.status,
            reason=reason,
            seconds=wait,
            **held_back,
        )


class Warn:
    """Logs the server's warnings (a deprecated kind, an unknown field), each text once."""

    def __init__(self, inner: RoundTripper) -> None:
        self._inner = inner
        self._seen: set[str] = set()

    async def send(self, request: Request) -> Response:
        """Send ``request`` and log new warnings of the response."""
        response = await self._inner.send(request)
        if "Warning" in response.headers:
            for whole in warnings_in(response.headers["Warning"]):
                text = whole[:_LONGEST_WARNING]
                if text not in self._seen and len(self._seen) < MAX_WARNINGS:
                    self._seen.add(text)
                    _log.info("Warning from the API server", warning=text, path=request.path)
        return response


def warnings_in(header: str) -> list[str]:
    """Return the texts of a Warning header, which contains ``299 - "text"`` once or several times."""
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


def not_sent(request: Request, host: str) -> errors.ConnectError:
    """Return the error of a write that is not sent because another replica may be the leader."""
    return errors.ConnectError(f"{request.method} {request.path} is not sent: leadership was lost", host=host)


class Throttle:
    """Limits the rate of requests for each resource: ``burst`` at once, and then ``qps`` per second.

    As in Go, where a manager has a REST client with its own limiter for each kind, a burst of writes of one kind delays
    no other kind. Unlike in Go, the namespaces whose requests wait take turns.
    """

    def __init__(self, inner: RoundTripper, qps: float, burst: int) -> None:
        self._inner = inner
        self._qps = qps
        self._burst = max(1, burst)
        self._limits: dict[tuple[str, str], _Limit] = {}

    def forget(self) -> None:
        """Forget tokens that were taken and requests that wait, which are those of a closed event loop."""
        self._limits.clear()

    async def send(self, request: Request) -> Response:
        """Wait for a token, then send ``request``."""
        if self._qps > 0:
            of = request.resource
            key = ("", "") if of is None else (of.group, of.plural)
            limit = self._limits.get(key)
            if limit is None:
                limit = self._limits[key] = _Limit(self._qps, self._burst)
            if limit.queue or not limit.bucket.try_take():
                await limit.wait(request.namespace or fairness.tenant().namespace)
        return await self._inner.send(request)


class _Limit:
    """The tokens of one resource, and the requests that wait for them."""

    def __init__(self, qps: float, burst: int) -> None:
        self.bucket = TokenBucket(qps, burst)
        self.queue = fairness.FairQueue("request", lambda _namespace: self.bucket.give_back())
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, namespace: str) -> None:
        """Return with a token."""
        if self._timer is None:
            self._admit_next()
        await self.queue.wait(namespace)

    def _admit_next(self) -> None:
        """Take the next token before it exists, and admit a request when it does."""
        self._timer = asyncio.get_running_loop().call_later(self.bucket.take(), self._admit)

    def _admit(self) -> None:
        self._timer = None
        if self.queue.admit() is None:
            self.bucket.give_back()
        elif self.queue:
            self._admit_next()


def _with_headers(request: Request, headers: dict[str, str]) -> Request:
    return msgspec.structs.replace(request, headers={**request.headers, **headers})
