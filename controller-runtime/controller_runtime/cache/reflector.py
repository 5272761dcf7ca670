# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reflector: a list followed by a watch, repeated without end, as an explicit state machine.

```
          ┌────────── refused, silent or ended too early ──────────┐
          │                                                        ▼
 ──► Streaming ── initial-events-end ──► Watching ◄── last page ── Listing ─┐ next page
          │                             │   ▲  │                   │   ▲    │
          │                    ended    └───┘  │                   │   └────┘
          └────────────── any failure ─────────┴───────────────────┘
                                │
                             Waiting ── then Watching from the last version, or Streaming/Listing again
```

Each state is a value, each step takes one state to the next, and :func:`after_failure` alone decides what a
failure leads to. The results go to a sink, a ``NamespaceInformer``. Between ``begin`` and ``finish`` the sink receives
every existing object; objects that are not reported by then have been deleted. At other times the sink receives
changes. All calls of the sink except ``finish`` return at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import offload, rest
from controller_runtime.machinery import Resource, rawjson
from controller_runtime.machinery import errors as api
from controller_runtime.machinery.backoff import Backoff, RandomFunc, exponential
from controller_runtime.rest import request as requests

from . import codec, errors

if TYPE_CHECKING:
    from .informer import NamespaceInformer

MAX_RESUMES: Final = 5
"""After this many failed attempts in a row to resume a watch, everything is listed again."""
_STEP_BYTES: Final = 256 << 10
"""Other tasks get a turn after this many bytes, or after ``offload.STEP`` objects."""
_SPREAD: Final = 0.1
"""A delay that the server requested is lengthened by up to this fraction, so that clients do not retry together."""
MAX_BROKEN_STREAMS: Final = 2
"""After this many streams of all objects broke in a row, the objects are listed instead."""
SHORT_WATCH: Final = 1.0
"""If a watch ends within this many seconds, we wait before we open the next one."""


class Streaming(msgspec.Struct, frozen=True):
    """Request the existing objects as watch events, followed by changes (WatchList)."""

    resource_version: str = ""


class Listing(msgspec.Struct, frozen=True):
    """List the objects: one page of them, or all objects if ``paged`` is False."""

    resource_version: str = ""
    continue_token: str = ""
    paged: bool = True


class Watching(msgspec.Struct, frozen=True):
    """Follow changes after a resourceVersion, on an open connection or a new one."""

    resource_version: str
    failures: int = 0
    lines: rest.Lines | None = None


class Waiting(msgspec.Struct, frozen=True):
    """Wait after a failure."""

    seconds: float
    then: Streaming | Listing | Watching


State = Streaming | Listing | Watching | Waiting


class StreamStopped(Exception):  # noqa: N818 -- an observation rather than an error
    """A connection was silent for too long or ended early: the peer is unreachable or does not stream."""


def after_failure(state: Streaming | Listing | Watching, error: Exception, known: str) -> State | None:
    """Return the state to enter after a failure and a pause, or None if the server cannot stream lists.

    ``known`` is the last resourceVersion seen. ``Streaming(…)`` means: list everything again, without streaming if the
    server does not support it.
    """
    if isinstance(state, Streaming) and isinstance(error, _CANNOT_STREAM):
        return None
    if isinstance(error, api.StatusError) and is_too_large_resource_version_error(error):
        # This server lags behind the server used before: request the newest state that this server has.
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
    # A server that is starting rejects requests for a short time: resume instead of listing again.
    return Watching(known, state.failures + 1)


def is_denied(error: Exception) -> bool:
    """Return True if the server refuses the kind itself: it is not served, or access is denied."""
    return isinstance(error, _DENIED)


def is_too_large_resource_version_error(error: api.StatusError) -> bool:
    """Return True if the server has not yet reached the requested resourceVersion."""
    if error.has_cause("ResourceVersionTooLarge"):
        return True
    return isinstance(error, api.ServerTimeoutError) and "Too large resource version" in error.message


_CANNOT_STREAM: Final = (api.InvalidError, api.BadRequestError, api.MethodNotAllowedError, StreamStopped)
_DENIED: Final = (
    api.NotFoundError,
    api.ForbiddenError,
    api.MethodNotAllowedError,
    rest.NoKindMatchError,
)
FAILURES: Final = (api.StatusError, rest.RestError, errors.BadObjectError, StreamStopped)


class Target(msgspec.Struct, frozen=True):
    """The objects to list and watch, and the settings of these requests."""

    namespace: str = ""
    labels: requests.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None
    metadata_only: bool = False
    transform: codec.Transform | None = None
    limits: rawjson.Limits = rawjson.DEFAULT
    page_size: int = 500
    watch_timeout: float = 300.0
    """The server ends a watch after this many seconds, or up to twice as many: the time is random, so that not all
    watches end together."""
    silence_timeout: float = 70.0
    """If a watch has no line for this many seconds, it is reopened: servers send a bookmark every minute."""
    streaming_timeout: float = 30.0
    """If a stream of the existing objects has no line for this many seconds, the objects are listed instead."""


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
        self._random = random
        self._backoff = Backoff(random=random)
        self._denied_backoff = Backoff(first=1.0, longest=10.0, jitter=0.2, random=random)
        # Retries put no load on an unreachable server, and we want to notice soon when the server is back.
        self._unreachable_backoff = Backoff(longest=8.0, jitter=0.25, random=random)
        self._waited = 0.0
        self._known = ""
        """The resourceVersion that a watch resumes from."""
        self._has_bookmarks = False
        """True if the server sends bookmarks to watches."""
        self._quiet = 0
        self._broken_streams = 0
        self.state: State = self._anew(Streaming(""))

    async def run(self) -> None:
        """Run one state after the other until cancelled."""
        while True:
            state = self.state
            try:
                match state:
                    case Waiting():
                        await anyio.sleep(state.seconds)
                        self._waited, self.state = state.seconds, state.then
                    case Streaming():
                        self.state = await self._stream(state)
                    case Listing():
                        self.state = await self._list(state)
                    case Watching():
                        self.state = await self._watch(state)
            except FAILURES as error:
                assert not isinstance(state, Waiting)  # noqa: S101 -- a wait raises none of these errors
                self.state = self._fail(state, error)

    def _fail(self, state: Streaming | Listing | Watching, error: Exception) -> State:
        then = after_failure(state, error, self._known)
        if then is None:
            # The network may be the cause of the silence: list this time, and try to stream again the next time.
            self._stream_lists = isinstance(error, StreamStopped)
            return Listing(self._known, paged=not self._known)
        denied = is_denied(error)
        self._sink.failed(error, denied=denied)
        delay = self._pause(error, denied=denied)
        if isinstance(then, Streaming) and not isinstance(state, Streaming):
            then = self._anew(then)
        assert not isinstance(then, Waiting)  # noqa: S101 -- after_failure never returns one
        return Waiting(delay, then)

    def _pause(self, error: Exception, *, denied: bool) -> float:
        """Return the delay after ``error``: the delay that the server requested, or the back-off."""
        if isinstance(error, api.StatusError) and error.retry_after:
            return error.retry_after * (1 + _SPREAD * self._random())
        backoff = self._denied_backoff if denied else self._backoff
        if isinstance(error, rest.TransportError):
            backoff = self._unreachable_backoff
        return backoff.next(anyio.current_time())

    def _anew(self, wish: Streaming) -> Streaming | Listing:
        if self._stream_lists:
            return wish
        # Never "0": a lagging server may return stale state, and we would redo finished work.
        # A server splits a list into pages only without a resourceVersion.
        return Listing(wish.resource_version, paged=not wish.resource_version)

    async def _stream(self, state: Streaming) -> State:
        """Receive all existing objects as a stream; the same connection then delivers changes."""
        lines = await self._open(state.resource_version, initial=True)
        complete = False
        try:
            self._sink.begin()
            if await self._consume(lines, initial=True):
                await self._sink.finish(self._known)
                complete, self._broken_streams = True, 0
                return Watching(self._known, lines=lines)
            # Objects that were already reported stay; a list reports the other ones. Do not stream again: a proxy may
            # end every stream.
            raise StreamStopped("the stream ended before it had delivered every object")
        except rest.TransportError as error:
            # A proxy may limit the duration or size of a response; pages stay below such a limit.
            self._broken_streams += 1
            if self._broken_streams >= MAX_BROKEN_STREAMS:
                raise StreamStopped(f"the stream broke again: {error}") from error
            raise
        finally:
            if not complete:
                await lines.close()

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
        work = 0
        for item in page.items or ():
            self._take_object(item)
            work += max(len(item), _STEP_BYTES // offload.STEP)
            if work >= _STEP_BYTES:
                work = 0
                await anyio.lowlevel.checkpoint()
        if page.metadata.continue_:
            return msgspec.structs.replace(state, continue_token=page.metadata.continue_)
        self._known = page.metadata.resource_version
        await self._sink.finish(self._known)
        return Watching(self._known)

    async def _watch(self, state: Watching) -> State:
        self._known = state.resource_version
        lines = state.lines or await self._open(state.resource_version, initial=False)
        opened = anyio.current_time()
        try:
            await self._consume(lines, initial=False)
        except StreamStopped:
            # The connection may be dead. A new connection resumes where this one stopped. If the server was alive, this
            # costs one request, and nothing is listed again.
            self._quiet += 1
            return Watching(self._known)
        except FAILURES as error:
            lasted = anyio.current_time() - opened
            if lasted >= self._waited:
                # The watch outlived its preceding back-off, so reset the back-offs. Otherwise watches that break
                # repeatedly, but work in between, would leave us without changes most of the time.
                for backoff in (self._backoff, self._denied_backoff, self._unreachable_backoff):
                    backoff.reset()
            return self._fail(Watching(self._known, 0 if lasted >= SHORT_WATCH else state.failures), error)
        finally:
            await lines.close()
        again = Watching(self._known)
        if anyio.current_time() - opened >= SHORT_WATCH:
            return again
        if again.resource_version == state.resource_version:
            # The server may be unable to watch from this version: after several such watches, list again.
            ended = StreamStopped("the watch ended at once and delivered nothing")
            return self._fail(Watching(state.resource_version, state.failures), ended)
        return Waiting(self._backoff.next(anyio.current_time()), again)

    async def _open(self, version: str, *, initial: bool) -> rest.Lines:
        target = self._target
        timeout = target.watch_timeout * (1 + self._random())
        request = requests.watch(
            await self._resource(),
            namespace=target.namespace,
            labels=target.labels,
            fields=target.fields,
            resource_version=version,
            timeout_seconds=int(timeout),
            send_initial_events=initial,
            metadata_only=target.metadata_only,
        )
        response = await self._transport.send(request)
        await response.raise_for_status()
        self._sink.connected()
        return rest.Lines(response)

    async def _consume(self, lines: rest.Lines, *, initial: bool) -> bool:
        """Report each line to the sink. Return False when the response ends.

        With ``initial``, return True as soon as every existing object has been reported.

        Raises:
            StreamStopped: no line came for too long.
            StatusError: the server reported an error in a line.
        """
        target = self._target
        if initial:
            limit = target.streaming_timeout
        elif self._has_bookmarks:
            limit = target.silence_timeout
        else:
            # Silence is a sign of a dead connection only if the server sends bookmarks. Until the server has sent one,
            # each silent watch doubles the time.
            most = 2 * target.watch_timeout + 30
            limit = exponential(self._quiet, target.silence_timeout, most)
        with anyio.move_on_after(limit) as watchdog:
            work = 0
            now, take = asyncio.get_running_loop().time, self._take_line
            async for line in lines:
                if line and take(line, initial=initial):
                    return True
                if self._has_bookmarks and not initial:
                    limit = target.silence_timeout
                deadline = now() + limit
                if abs(deadline - watchdog.deadline) > 1:
                    watchdog.deadline = deadline
                work += max(len(line), _STEP_BYTES // offload.STEP)
                if work >= _STEP_BYTES:
                    work = 0
                    await anyio.lowlevel.checkpoint()
            return False
        raise StreamStopped(f"no line for {limit:.0f} s")

    # Lines and items. An unreadable object does not end the watch.

    def _take_line(self, line: bytes, *, initial: bool) -> bool:
        """Report a watch line to the sink; return True if it ends the initial events.

        Raises:
            StatusError: the line is an ERROR line.
        """
        try:
            event = codec.split_line(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    version = self._take_object(event.object)
                case "DELETED":
                    version = self._take_deletion(event.object)
                case "BOOKMARK":
                    return self._take_bookmark(codec.bookmark_of(event.object), initial=initial)
                case "ERROR":
                    raise codec.error_of(event.object)
                case other:
                    self._sink.skip(errors.BadObjectError(f"a watch line of unknown type {other!r}"))
                    return False
        except errors.BadObjectError as error:
            self._sink.skip(error)
            return False
        if not initial:
            # Initial events have no order: a watch cannot resume from their versions.
            self._known = version or self._known
        return False

    def _take_bookmark(self, bookmark: rawjson.Bookmark, *, initial: bool) -> bool:
        if initial and not bookmark.ends_initial_events:
            return False
        self._known = bookmark.resource_version or self._known
        if not initial:
            # A server that sends bookmarks sends one every minute: from now on, silence means a dead connection.
            self._has_bookmarks = True
            self._sink.reached(self._known)
        return initial

    def _take_deletion(self, raw: msgspec.Raw) -> str:
        """Report a deletion and return its resourceVersion. If the object cannot be decoded, return an empty string.

        An undecodable object is reported as deleted if its name can be read.
        """
        target = self._target
        try:
            gone = codec.entry_of(raw, target.transform, target.limits)
        except errors.BadObjectError as error:
            if error.key is not None:
                self._sink.lost(error.key)
            self._sink.skip(error)
            return ""
        self._sink.delete(gone)
        return gone.resource_version

    def _take_object(self, raw: msgspec.Raw) -> str:
        """Report an object to the sink; return its resourceVersion, or an empty string if it is undecodable."""
        target = self._target
        try:
            entry = codec.entry_of(raw, target.transform, target.limits)
        except errors.BadObjectError as error:
            if error.key is not None:
                self._sink.seen(error.key)
            self._sink.skip(error)
            return ""
        self._sink.apply(entry)
        return entry.resource_version
