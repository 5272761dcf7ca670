# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A LeaderElector in its own thread: the lease is renewed even while the program's event loop is busy.

The thread has its own event loop and connection. Renewing in a thread would let a blocked program keep its lease,
so two rules restore the usual guarantees:

- The program writes only while :attr:`ThreadedElector.may_act` is true, which is checked at each write: if the lease
  was lost while the loop was blocked, later writes are refused even before a task receives the error.
- If the program's loop has not run for the duration of a lease, the lease is no longer renewed, and another replica
  takes it. Health probes, which the same loop answers, fail until the process is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import anyio.to_thread

from controller_runtime import client, rest
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import NamespacedName
from controller_runtime.rest.layers import Observe, count

from .leaderelection import LeaderElectionLostError, LeaderElector, Timing

T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[client.Client]]
_POLL: Final = 0.1
"""Seconds between two checks whether the thread still runs."""
_JOIN_TIMEOUT: Final = 5.0
"""Seconds to wait for the end of the thread. After that, the thread is abandoned."""


def connection(config: rest.Config, observe: Observe = count) -> Connect | None:
    """Return a function that connects a thread to the server; None if the credentials work only in one event loop."""
    credentials = config.credentials.for_another_loop()
    if credentials is None:
        return None
    own = dataclasses.replace(config, credentials=credentials, qps=0)

    @asynccontextmanager
    async def connect() -> AsyncIterator[client.Client]:
        async with rest.Transport(own, observe=observe) as transport:
            yield client.LiveClient(transport)

    return connect


class ThreadedElector:
    """Runs a LeaderElector in a thread. Use it in an ``async with`` block, which ends the thread.

    ``connect`` is called in the thread. The thread starts at :meth:`acquire`.
    """

    def __init__(
        self,
        connect: Connect,
        key: NamespacedName,
        identity: str,
        timing: Timing | None = None,
    ) -> None:
        """Check the durations. Raises InvalidTimingError like :class:`LeaderElector`."""
        self._connect = connect
        self._key = key
        self.identity = identity
        """The identity of this replica in the lease."""
        self._timing = timing or Timing()
        self._timing.validate()
        self._elector: LeaderElector | None = None
        self._thread: threading.Thread | None = None
        self._inner: asyncio.AbstractEventLoop | None = None
        self._finish: asyncio.Event | None = None
        self._lock: asyncio.Lock | None = None
        self._leading: Future[None] | None = None
        self._led = self._ended = False
        self._last_heartbeat = float("-inf")

    @property
    def lease(self) -> Lease:
        """The lease as it was last seen. If it has not been seen yet, this is a lease with only the name."""
        if self._elector is not None:
            return self._elector.lease
        return Lease(metadata=ObjectMeta(namespace=self._key.namespace, name=self._key.name))

    @property
    def may_act(self) -> bool:
        """True before the program leads for the first time, and while the lease is ours: then it may write.

        Any thread may read this.
        """
        if not self._led or self._elector is None:
            return True
        return not self._ended and time.monotonic() < self._elector.tenure_ends

    async def acquire(self) -> None:
        """Return when the lease is ours. From then on the lease is renewed, even while our own loop is blocked."""
        await self._start()
        outer, elected = asyncio.get_running_loop(), asyncio.Event()
        self._leading = self._begin(self._lead(outer, elected))
        self._leading.add_done_callback(lambda _: _call(outer, elected.set))
        try:
            await elected.wait()
        except BaseException:
            self._leading.cancel()
            raise
        if self._leading.done():
            self._leading.result()

    async def renew(self) -> None:
        """Keep the lease until cancelled.

        Raises:
            LeaderElectionLostError: the lease could not be kept; the caller must stop acting at once.
        """
        if self._leading is None:
            return
        try:
            await asyncio.wrap_future(self._leading)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LeaderElectionLostError(
                f"leader election lost: the thread of lease {self._key} has ended"
            ) from error

    async def release(self) -> None:
        """Release the lease if it is ours. A failure is only logged. If the thread has ended, let the lease expire."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        work = self._release()
        try:
            released = asyncio.wrap_future(self._begin(work))
        except RuntimeError:  # the thread's loop is closed
            work.close()
            return
        while thread.is_alive() and not released.done():
            await asyncio.wait([released], timeout=_POLL)
        if released.done():
            released.result()
        else:
            released.cancel()
            work.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is None or self._inner is None or self._finish is None:
            return
        if self._leading is not None:
            self._leading.cancel()
        _call(self._inner, self._finish.set)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(thread.join, _JOIN_TIMEOUT)

    # Below, in the caller's loop.

    async def _start(self) -> None:
        if self._thread is not None:
            return
        # A model builds its validator on first use, which is not safe in two threads at once: use the model before the
        # thread starts.
        Lease.from_json(Lease(metadata=self.lease.metadata, spec=self.lease.spec).to_json())
        outer, ready = asyncio.get_running_loop(), asyncio.Event()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(lambda: _call(outer, ready.set)))
            except BaseException as error:
                failure.append(error)
                _call(outer, ready.set)

        self._thread = threading.Thread(target=run, name="leader-election", daemon=True)
        self._thread.start()
        await ready.wait()
        if failure:
            raise failure[0]

    def _begin(self, work: Coroutine[object, None, T]) -> Future[T]:
        assert self._inner is not None  # noqa: S101 -- the thread has started
        return asyncio.run_coroutine_threadsafe(work, self._inner)

    def _heartbeat(self) -> None:
        self._last_heartbeat = time.monotonic()

    # Below, in the thread's loop.

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._inner, self._finish, self._lock = asyncio.get_running_loop(), asyncio.Event(), asyncio.Lock()
        async with self._connect() as client_:
            self._elector = LeaderElector(client_, self._key, self.identity, self._timing)
            ready()
            await self._finish.wait()

    async def _lead(self, outer: asyncio.AbstractEventLoop, elected: asyncio.Event) -> None:
        assert self._lock is not None  # noqa: S101 -- the thread serves
        assert self._elector is not None  # noqa: S101
        lost: list[BaseException] = []
        async with self._lock:
            await self._elector.acquire()
            self._led = True
            self._last_heartbeat = time.monotonic()  # the loop was not blocked while we waited for the lease
            _call(outer, elected.set)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, outer)
                    tasks.start_soon(self._elector.renew)
            except* LeaderElectionLostError as group:
                lost.extend(group.exceptions)
            finally:
                self._ended = True
        if lost:
            raise lost[0]

    async def _watch(self, outer: asyncio.AbstractEventLoop) -> None:
        """Raise LeaderElectionLostError when the program's loop has not run for longer than the duration of a lease."""
        longest = self._timing.lease_duration
        while True:
            silence = time.monotonic() - self._last_heartbeat
            if silence > longest:
                raise LeaderElectionLostError(
                    f"leader election lost: the event loop has not run for {silence:.0f} s, "
                    f"so lease {self._key} is left to expire"
                )
            _call(outer, self._heartbeat)
            await asyncio.sleep(self._timing.retry_period)

    async def _release(self) -> None:
        assert self._lock is not None  # noqa: S101 -- the thread serves
        assert self._elector is not None  # noqa: S101
        async with self._lock:  # a cancelled _lead holds the lock until its request has ended
            await self._elector.release()


Elector = LeaderElector | ThreadedElector
"""The electors of managers, which call ``acquire``, then ``renew`` until it ends, then ``release``."""


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run ``callback`` in another thread's loop. Do nothing if that loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
