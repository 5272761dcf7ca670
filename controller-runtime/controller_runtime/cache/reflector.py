# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reflector: a list followed by a watch, repeated without end, as an explicit state machine.

```
          ┌────────── refused, silent or ended too early ──────────┐
          │                                                        ▼
 ──► Streaming ── initial-events-end ──► Watching ◄── last page ── Listing ─┐ next page
          │                                 │                      │   ▲    │
          │                            cannot resume               │   └────┘
          └───── any failure, then a delay, then Streaming or Listing ─────┘
```

Each state is a value, each step takes one state to the next, and :func:`after_failure` alone decides what a
failure leads to. While the state is Watching, a :class:`controller_runtime.rest.WatchLoop` opens one connection after
the other. The results go to a sink, a ``NamespaceInformer``. Between ``begin`` and ``finish`` the sink receives
every existing object; objects that are not reported by then have been deleted. At other times the sink receives
changes. All calls of the sink except ``finish`` return at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import rest
from controller_runtime.machinery import Resource, rawjson
from controller_runtime.machinery.backoff import RandomFunc
from controller_runtime.machinery.errors import (
    BadRequestError,
    ExpiredError,
    InvalidError,
    MethodNotAllowedError,
    ServerTimeoutError,
    StatusError,
    TooManyRequestsError,
)
from controller_runtime.rest import StreamStoppedError, streams
from controller_runtime.rest import request as requests

from . import codec, errors

if TYPE_CHECKING:
    from .informer import NamespaceInformer

MAX_RESUMES: Final = 5
"""After this many failed attempts in a row to resume a watch, everything is listed again."""
MAX_BROKEN_STREAMS: Final = 2
"""After this many streams of all objects broke in a row, the objects are listed instead."""
_STREAMING_TIMEOUT: Final = 30.0
"""If a stream of the existing objects has no line for this many seconds, the objects are listed instead."""


class Streaming(msgspec.Struct, frozen=True):
    """Request the existing objects as watch events, followed by changes (WatchList)."""

    resource_version: str = ""


class Listing(msgspec.Struct, frozen=True):
    """List the objects: one page of them, or all objects if ``paged`` is False."""

    resource_version: str = ""
    continue_token: str = ""
    paged: bool = True


class Watching(msgspec.Struct, frozen=True):
    """Follow the changes after the last known resourceVersion."""


State = Streaming | Listing | Watching


def after_failure(state: State, error: Exception, known: str) -> Streaming | Listing | None:
    """Return the state to enter after a failure and a pause, or None if the server cannot stream lists.

    ``known`` is the last resourceVersion seen. ``Streaming(…)`` means: list everything again, without streaming if the
    server does not support it.
    """
    if isinstance(state, Streaming) and isinstance(error, _CANNOT_STREAM):
        return None
    if isinstance(error, StatusError) and is_too_large_resource_version_error(error):
        # This server lags behind the server used before: request the newest state that this server has.
        return Streaming("")
    if isinstance(state, Watching):
        return Streaming(known)
    if isinstance(error, ExpiredError):
        return (
            Listing("", paged=False) if isinstance(state, Listing) and state.continue_token else Streaming("")
        )
    return state


def is_too_large_resource_version_error(error: StatusError) -> bool:
    """Return True if the server has not yet reached the requested resourceVersion."""
    if error.has_cause("ResourceVersionTooLarge"):
        return True
    return isinstance(error, ServerTimeoutError) and "Too large resource version" in error.message


_CANNOT_STREAM: Final = (InvalidError, BadRequestError, MethodNotAllowedError, StreamStoppedError)
FAILURES: Final = (StatusError, rest.RestError, errors.BadObjectError)


class Target(msgspec.Struct, frozen=True):
    """The objects to list and watch, and the settings of these requests."""

    namespace: str = ""
    labels: requests.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None
    metadata_only: bool = False
    transform: codec.Transform | None = None
    limits: rawjson.Limits = rawjson.DEFAULT
    page_size: int = 500


class Reflector:
    """Reports the objects of one kind, in one namespace or all, to a sink; :meth:`run` never returns by itself."""

    def __init__(
        self,
        transport: rest.RoundTripper,
        resource: Callable[[], Awaitable[Resource]],
        target: Target,
        sink: NamespaceInformer,
        *,
        stream_lists: bool = True,
        random: RandomFunc,
    ) -> None:
        self._transport = transport
        self._resource = resource
        self._target = target
        self._sink = sink
        self._stream_lists = stream_lists
        self._watch = rest.WatchLoop(
            transport,
            resource,
            self,
            random=random,
            metadata_only=target.metadata_only,
            namespace=target.namespace,
            labels=target.labels,
            fields=target.fields,
        )
        self._broken_streams = 0
        self.state: State = self._supported(Streaming(""))

    async def run(self) -> None:
        """Run one state after the other until cancelled."""
        while True:
            state = self.state
            try:
                match state:
                    case Streaming():
                        self.state = await self._stream(state)
                    case Listing():
                        self.state = await self._list(state)
                    case Watching():
                        await self._watch.follow()
                continue
            except FAILURES as error:
                delay = self._fail(state, error)
            if delay:
                await anyio.sleep(delay)

    def _fail(self, state: State, error: Exception) -> float:
        """Enter the state that follows a failure; return the seconds to wait before."""
        known = self._watch.version
        then = after_failure(state, error, known)
        if then is None:
            # The network may be the cause of the silence: list this time, and try to stream again the next time.
            self._stream_lists = isinstance(error, StreamStoppedError)
            self.state = Listing(known, paged=not known)
            return 0.0
        self._sink.failed(error)
        if isinstance(then, Streaming) and not isinstance(state, Streaming):
            then = self._supported(then)
        self.state = then
        return self._watch.backoff_after(error)

    def _supported(self, state: Streaming) -> Streaming | Listing:
        """Return ``state``, or a list in its place if the server cannot stream lists."""
        if self._stream_lists:
            return state
        # Never "0": a lagging server may return stale state, and we would redo finished work.
        # A server splits a list into pages only without a resourceVersion.
        return Listing(state.resource_version, paged=not state.resource_version)

    async def _stream(self, state: Streaming) -> State:
        """Receive all existing objects as a stream; the same connection then delivers changes."""
        await self._watch.open(initial_from=state.resource_version)
        complete = False
        try:
            # If this fails, objects that were already reported stay; a list reports the other ones.
            await self._watch.read_existing(_STREAMING_TIMEOUT)
            await self._sink.finish(self._watch.version)
            complete, self._broken_streams = True, 0
            return Watching()
        except rest.TransportError as error:
            # A proxy may limit the duration or size of a response; pages stay below such a limit.
            self._broken_streams += 1
            if self._broken_streams >= MAX_BROKEN_STREAMS:
                raise StreamStoppedError(f"the stream broke again: {error}") from error
            raise
        finally:
            if not complete:
                await self._watch.close()

    async def _list(self, state: Listing) -> State:
        target = self._target
        request = requests.list_(
            await self._resource(),
            namespace=target.namespace,
            labels=target.labels,
            fields=target.fields,
            limit=target.page_size if state.paged else None,
            continue_token=state.continue_token,
            resource_version=None if state.continue_token else state.resource_version,
            metadata_only=target.metadata_only,
        )
        response = await self._transport.send(request)
        await response.raise_for_status()
        page = await codec.split_large_page(await response.read())
        self._sink.connected()
        if not state.continue_token:
            self._sink.begin()
        turn = 0
        for item in page.items or ():
            self.receive("ADDED", item)
            turn += max(len(item), streams.SMALLEST_OBJECT)
            if turn >= streams.TURN_BYTES:
                turn = 0
                await anyio.lowlevel.checkpoint()
        if page.metadata.continue_:
            return msgspec.structs.replace(state, continue_token=page.metadata.continue_)
        self._watch.version = page.metadata.resource_version
        await self._sink.finish(self._watch.version)
        return Watching()

    # Events of the watch. An unreadable object does not end it.

    def connected(self) -> None:
        """Tell the sink that the server has accepted the watch, and that a stream of all objects begins."""
        self._sink.connected()
        if isinstance(self.state, Streaming):
            self._sink.begin()

    def receive(self, event: str, raw: msgspec.Raw | dict[str, msgspec.Raw]) -> str:
        """Report an object to the sink; return its resourceVersion, or an empty string if it is undecodable.

        An undecodable object is reported as existing or deleted if its name can be read.
        """
        target = self._target
        try:
            entry = codec.entry_of(raw, target.transform, target.limits)
        except errors.BadObjectError as error:
            if error.key is not None:
                (self._sink.lost if event == "DELETED" else self._sink.seen)(error.key)
            self._sink.skip(error)
            return ""
        if event == "DELETED":
            self._sink.remove(entry)
        else:
            self._sink.put(entry)
        return entry.resource_version

    def reached(self, version: str) -> None:
        """Tell the sink that every change up to ``version`` has been reported."""
        self._sink.reached(version)

    def skip(self, reason: str) -> None:
        """Count and report a line that cannot be read."""
        self._sink.skip(errors.BadObjectError(reason))

    def resumes(self, error: Exception, failures: int) -> bool:
        """Return True unless the objects must be listed again: the version is unknown, or resuming keeps failing."""
        unknown = isinstance(error, ExpiredError) or (
            isinstance(error, StatusError) and is_too_large_resource_version_error(error)
        )
        # A list would cost a busy server more than the watch that it refuses.
        busy = isinstance(error, TooManyRequestsError)
        if unknown or (failures >= MAX_RESUMES and not busy):
            return False
        # A server that is starting rejects requests for a short time: resume instead of listing again.
        self._sink.failed(error)
        return True
