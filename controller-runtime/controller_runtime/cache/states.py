# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The states of a reflector, and the transition after a failure in each; values and pure functions only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import msgspec

from controller_runtime import rest
from controller_runtime.machinery import errors as api

from . import errors

MAX_RESUMES: Final = 5
"""Failures in a row to resume a watch before everything is listed again."""


class Lines:
    """A connection's lines; to be closed."""

    def __init__(self, response: rest.Response) -> None:
        self._response = response
        self._lines = response.lines()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._lines

    async def close(self) -> None:
        """Give the connection up."""
        if isinstance(self._lines, AsyncGenerator):
            await self._lines.aclose()
        await self._response.close()


class Streaming(msgspec.Struct, frozen=True):
    """Request every existing object as events, then changes (WatchList)."""

    resource_version: str = ""


class Listing(msgspec.Struct, frozen=True):
    """Read a page of everything there is."""

    resource_version: str = ""
    continue_token: str = ""
    paged: bool = True


class Watching(msgspec.Struct, frozen=True):
    """Follow changes after a resourceVersion, on an open connection or a new one."""

    resource_version: str
    failures: int = 0
    lines: Lines | None = None


class Waiting(msgspec.Struct, frozen=True):
    """Wait after a failure."""

    seconds: float
    then: Streaming | Listing | Watching


State = Streaming | Listing | Watching | Waiting


class Silence(Exception):  # noqa: N818 -- an observation rather than an error
    """A connection was silent for too long, or ended early: the peer is unreachable, or does not stream."""


def after_failure(state: Streaming | Listing | Watching, error: Exception, known: str) -> State | None:
    """Return what to do after the pause that follows a failure; None when the server cannot stream lists.

    ``known`` is the last resourceVersion seen. ``Streaming(…)`` means a full listing, by pages where
    the server cannot stream.
    """
    if isinstance(state, Streaming) and isinstance(error, _CANNOT_STREAM):
        return None
    if isinstance(error, api.StatusError) and too_large(error):
        # This server lags behind the one used before: request its newest state.
        return Streaming("")
    if isinstance(error, api.ExpiredError):
        match state:
            case Listing(continue_token=token) if token:
                return Listing("", paged=False)
            case Watching():
                return Streaming(known)
            case _:
                return Streaming("")
    if not isinstance(state, Watching):
        return state
    if state.failures >= MAX_RESUMES:
        return Streaming(known)
    # A starting server briefly rejects requests that it will serve: resume instead of listing again.
    return Watching(known, state.failures + 1)


def is_denied(error: Exception) -> bool:
    """Return True if the server refuses the kind itself: it is not served, or access is denied."""
    return isinstance(error, _DENIED)


def too_large(error: api.StatusError) -> bool:
    """Return True if the server has not reached the requested resourceVersion."""
    if any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes):
        return True
    return isinstance(error, api.ServerTimeoutError) and "Too large resource version" in error.message


_CANNOT_STREAM: Final = (api.InvalidError, api.BadRequestError, api.MethodNotAllowedError, Silence)
_DENIED: Final = (
    api.NotFoundError,
    api.ForbiddenError,
    api.UnauthorizedError,
    api.MethodNotAllowedError,
    rest.NoKindMatchError,
)
FAILURES: Final = (api.StatusError, rest.RestError, errors.BadObjectError, Silence)
