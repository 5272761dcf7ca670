# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What every request passes on its way out, each a round tripper around the next.

``Meter`` (counts what the server answered) ← ``Authorize`` (headers, and once again after a 401) ←
``RetryAfter`` (asks again when the server says when) ← ``Warn`` (logs what the server warns of) ←
``Throttle`` (a token bucket) ← ``Fence`` (for what only a leader writes).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Final

import anyio

from controller_runtime import log
from controller_runtime.tokenbucket import TokenBucket

from . import errors
from .credentials import Credentials
from .request import Request
from .roundtrip import Response, RoundTripper

MAX_RETRIES: Final = 10
MAX_WARNINGS: Final = 1000
_LONGEST_WARNING: Final = 256
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_log: Final = log.logger_from("rest")

Observe = Callable[[str, str, str], None]
"""Told code, method and host of each answer; the code of none is ``<error>``."""


class Meter:
    """Tells ``observe`` each outcome."""

    def __init__(self, inner: RoundTripper, host: str, observe: Observe) -> None:
        self._inner = inner
        self._host = host
        self._observe = observe

    async def send(self, request: Request) -> Response:
        """Send, and tell."""
        try:
            response = await self._inner.send(request)
        except errors.TransportError:
            self._observe("<error>", request.method, self._host)
            raise
        self._observe(str(response.status), request.method, self._host)
        return response


class Authorize:
    """Adds the credentials; a 401 renews them and asks once more, if that brought others."""

    def __init__(self, inner: RoundTripper, credentials: Credentials, host: str) -> None:
        self._inner = inner
        self._credentials = credentials
        self._host = host
        self._renewing = anyio.Lock()

    async def send(self, request: Request) -> Response:
        """Send with the present credentials."""
        used = await self._headers()
        response = await self._inner.send(_with_headers(request, used))
        if response.status != 401:
            return response
        async with self._renewing:
            # Of many requests that were refused together, the first renews for all.
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
        return await self._inner.send(_with_headers(request, renewed))

    async def _headers(self) -> dict[str, str]:
        try:
            return await self._credentials.headers()
        except errors.ConfigError as error:
            raise errors.TransportError(str(error), host=self._host) from error


class RetryAfter:
    """Asks again after the time that a 429 or 5xx names in Retry-After, as client-go does.

    Streams are not retried: who follows one decides when to begin anew.
    """

    def __init__(self, inner: RoundTripper, *, max_retries: int = MAX_RETRIES) -> None:
        self._inner = inner
        self._max_retries = max_retries

    async def send(self, request: Request) -> Response:
        """Send until the server does not ask to wait."""
        retries = 0
        while True:
            response = await self._inner.send(request)
            if request.stream or (response.status != 429 and response.status < 500):
                return response
            delay = errors.parse_retry_after(response.headers.get("Retry-After"))
            if delay is None:
                return response
            await anyio.sleep(delay)
            if retries == self._max_retries:
                # Passed on when its time is over, and saying so: whoever asks next does so no sooner than the
                # server said, and nobody waits a second time.
                others = {k: v for k, v in response.headers.items() if k.lower() != "retry-after"}
                response.headers = {**others, "Retry-After": "0"}
                return response
            retries += 1
            await response.close()


class Warn:
    """Logs what the server warns of (a deprecated kind, an unknown field), each text once."""

    def __init__(self, inner: RoundTripper) -> None:
        self._inner = inner
        self._seen: set[str] = set()

    async def send(self, request: Request) -> Response:
        """Send, and log."""
        response = await self._inner.send(request)
        if "Warning" in response.headers:
            for whole in warnings_in(response.headers["Warning"]):
                text = whole[:_LONGEST_WARNING]
                if text not in self._seen and len(self._seen) < MAX_WARNINGS:
                    self._seen.add(text)
                    _log.info("Warning from the API server", warning=text, path=request.path)
        return response


def warnings_in(header: str) -> list[str]:
    """Return the texts of a Warning header, which holds ``299 - "text"`` once or several times."""
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


class Fence:
    """Keeps writes from the wire once ``may_write`` says no, however long they waited on their way here."""

    def __init__(self, inner: RoundTripper, may_write: Callable[[], bool], host: str) -> None:
        self._inner = inner
        self._may_write = may_write
        self._host = host

    async def send(self, request: Request) -> Response:
        """Send, unless it is a write that may not be."""
        if request.method != "GET" and not self._may_write():
            raise errors.TransportError(
                f"{request.method} {request.path} is not sent: leadership was lost", host=self._host
            )
        return await self._inner.send(request)


class Throttle:
    """Lets ``qps`` requests a second through, ``burst`` at once; the rest wait in order."""

    def __init__(self, inner: RoundTripper, qps: float, burst: int) -> None:
        self._inner = inner
        self._bucket = TokenBucket(qps, max(1, burst), anyio.current_time) if qps > 0 else None

    async def send(self, request: Request) -> Response:
        """Wait for a token, then send; a request that is cancelled while it waits gives its token back."""
        if self._bucket is not None and (wait := self._bucket.take()):
            try:
                await anyio.sleep(wait)
            except BaseException:
                self._bucket.give_back()
                raise
        return await self._inner.send(request)


def _with_headers(request: Request, headers: dict[str, str]) -> Request:
    return dataclasses.replace(request, headers={**request.headers, **headers}) if headers else request
