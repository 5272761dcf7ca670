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
failure leads to. The results go to a :class:`~.intake.Sink`. Between ``begin`` and ``finish`` the sink receives
every existing object: objects not reported by then are deleted. At other times it receives changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from controller_runtime import rest
from controller_runtime.machinery import Resource, shape
from controller_runtime.machinery import errors as api
from controller_runtime.rest import request as requests

from . import codec, pages
from .backoff import Backoff, RandomFunc
from .intake import Intake, Sink
from .states import (
    FAILURES,
    Lines,
    Listing,
    Silence,
    State,
    Streaming,
    Waiting,
    Watching,
    after_failure,
    is_denied,
)

STEP: Final = 16
"""Objects taken in a row before other tasks get a turn."""
_STEP_BYTES: Final = 256 << 10
"""Bytes of them: large objects are fewer."""
_SPREAD: Final = 0.1
"""The largest part by which a wait that the server requested is lengthened, so that clients do not retry at once."""
MAX_BROKEN_STREAMS: Final = 2
"""Streams of all objects that break, in a row, before objects are listed."""
SHORT_WATCH: Final = 1.0
"""Seconds; a watch that ends sooner is not reopened at once."""


class Target(msgspec.Struct, frozen=True):
    """The objects to list and watch, and the settings for it."""

    namespace: str = ""
    labels: requests.LabelSelectorLike | None = None
    fields: Mapping[str, str] | str | None = None
    metadata_only: bool = False
    transform: codec.Transform | None = None
    limits: shape.Limits = shape.DEFAULT
    page_size: int = 500
    watch_timeout: float = 300.0
    """Seconds a watch lasts at least; up to twice that, so that many do not end together."""
    silence_timeout: float = 70.0
    """Seconds without a line after which a watch is reopened: servers send a bookmark each minute."""
    streaming_timeout: float = 30.0
    """Seconds without a line, while all there is should stream, after which it is listed instead."""


class Reflector:
    """Reports the objects of one kind, in one namespace or all, to a sink; :meth:`run` never returns by itself."""

    def __init__(
        self,
        transport: rest.RoundTripper,
        resource: Callable[[], Awaitable[Resource]],
        target: Target,
        sink: Sink,
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
        # Retrying does not load an unreachable server, and its return should be noticed soon.
        self._away_backoff = Backoff(longest=8.0, jitter=0.25, random=random)
        self._waited = 0.0
        self._intake = Intake(sink, target.transform, target.limits)
        self._quiet = 0
        self._broken_streams = 0
        self.state: State = self._anew(Streaming(""))

    async def run(self) -> None:
        """Take step after step until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Run the current state, and enter the next."""
        state = self.state
        if isinstance(state, Waiting):
            await anyio.sleep(state.seconds)
            self._waited = state.seconds
            self.state = state.then
            return
        try:
            match state:
                case Streaming():
                    self.state = await self._stream(state)
                case Listing():
                    self.state = await self._list(state)
                case Watching():
                    self.state = await self._watch(state)
        except FAILURES as error:
            self.state = self._fail(state, error)

    def _fail(self, state: Streaming | Listing | Watching, error: Exception) -> State:
        then = after_failure(state, error, self._intake.known)
        if then is None:
            # Silence may be the network's: it is listed this time only.
            self._stream_lists = isinstance(error, Silence)
            return Listing(self._intake.known, paged=not self._intake.known)
        denied = is_denied(error)
        self._sink.failed(error, denied=denied)
        delay = self._pause(error, denied=denied)
        if isinstance(then, Streaming) and not isinstance(state, Streaming):
            then = self._anew(then)
        assert not isinstance(then, Waiting)  # noqa: S101 -- after_failure never returns one
        return Waiting(delay, then)

    def _pause(self, error: Exception, *, denied: bool) -> float:
        """Return the delay after ``error``: the one that the server sent, or the back-off."""
        if isinstance(error, api.StatusError) and error.retry_after:
            return error.retry_after * (1 + _SPREAD * self._random())
        backoff = self._denied_backoff if denied else self._backoff
        if isinstance(error, rest.TransportError):
            backoff = self._away_backoff
        return backoff.next(anyio.current_time())

    def _anew(self, wish: Streaming) -> Streaming | Listing:
        if self._stream_lists:
            return wish
        # Never "0": a lagging server may return stale state, and we would redo finished work.
        # Pages come only without a resourceVersion.
        return Listing(wish.resource_version, paged=not wish.resource_version)

    async def _stream(self, state: Streaming) -> State:
        """Receive all existing objects as a stream; the same connection then delivers changes."""
        lines = await self._open(state.resource_version, initial=True)
        complete = False
        try:
            self._sink.begin()
            if await self._consume(lines, lambda: self._target.streaming_timeout, initial=True):
                await self._sink.finish(self._intake.known)
                complete, self._broken_streams = True, 0
                return Watching(self._intake.known, lines=lines)
            # Objects already reported stay. A list reports the rest: a proxy may end every stream.
            raise Silence("the stream ended before it had delivered every object")
        except rest.TransportError as error:
            # A proxy may bound the time or size of a response, which pages stay below.
            self._broken_streams += 1
            if self._broken_streams >= MAX_BROKEN_STREAMS:
                raise Silence(f"the stream broke again: {error}") from error
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
        page = await pages.split(await response.read())
        self._sink.connected()
        if not state.continue_token:
            self._sink.begin()
        work = 0
        take = self._intake.take_object
        for item in page.items or ():
            take(item)
            work += max(len(item), _STEP_BYTES // STEP)
            if work >= _STEP_BYTES:
                work = 0
                await anyio.lowlevel.checkpoint()
        if page.metadata.continue_:
            return msgspec.structs.replace(state, continue_token=page.metadata.continue_)
        self._intake.known = page.metadata.resource_version
        await self._sink.finish(self._intake.known)
        return Watching(self._intake.known)

    async def _watch(self, state: Watching) -> State:
        self._intake.known = state.resource_version
        lines = state.lines or await self._open(state.resource_version, initial=False)
        opened = anyio.current_time()
        try:
            await self._consume(lines, self._silence, initial=False)
        except Silence:
            # The connection may be dead. A new one resumes where this one stopped: if the server
            # was alive, that costs one request, and nothing is listed again.
            self._quiet += 1
            return Watching(self._intake.known)
        except FAILURES as error:
            lasted = anyio.current_time() - opened
            if lasted >= self._waited:
                # The watch outlived its preceding back-off, so reset the back-offs. Otherwise watches that break
                # repeatedly, but work in between, would leave us without changes most of the time.
                for backoff in (self._backoff, self._denied_backoff, self._away_backoff):
                    backoff.reset()
            return self._fail(
                Watching(self._intake.known, 0 if lasted >= SHORT_WATCH else state.failures), error
            )
        finally:
            await lines.close()
        again = Watching(self._intake.known)
        if anyio.current_time() - opened < SHORT_WATCH:
            return Waiting(self._backoff.next(anyio.current_time()), again)
        return again

    async def _open(self, version: str, *, initial: bool) -> Lines:
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
        return Lines(response)

    def _silence(self) -> float:
        """How long a quiet watch is believed: only bookmarks prove that the other side still lives.

        Where none ever came, silence means ever less each time.
        """
        silence = self._target.silence_timeout
        if self._intake.has_bookmarks:
            return silence
        return min(silence * 2.0 ** min(self._quiet, 10), 2 * self._target.watch_timeout + 30)

    async def _consume(self, lines: Lines, silence: Callable[[], float], *, initial: bool) -> bool:
        """Take lines until they end (False) or, ``initial``, until every existing object was reported (True).

        Raises:
            Silence: no line came for too long.
            StatusError: the server reported an error in a line.
        """
        limit = silence()
        with anyio.move_on_after(limit) as watchdog:
            work = 0
            now, take = asyncio.get_running_loop().time, self._intake.take_line
            async for line in lines:
                if line and take(line, initial=initial):
                    return True
                limit = silence()
                deadline = now() + limit
                if abs(deadline - watchdog.deadline) > 1:
                    watchdog.deadline = deadline
                work += max(len(line), _STEP_BYTES // STEP)
                if work >= _STEP_BYTES:
                    work = 0
                    await anyio.lowlevel.checkpoint()
            return False
        raise Silence(f"no line for {limit:.0f} s")
