# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runnables that start and stop together.

``start`` of a group returns when all its members are ready, and ``stop`` returns when all have ended. If a member fails
at any time, the failure is reported and the whole manager stops: a manager never runs with only some of its members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from controller_runtime import cache, log
from controller_runtime.machinery import raised

from .errors import GroupStoppedError, ManagerError

_log = log.logger_from("controller-runtime.manager")


class Runnable(Protocol):
    """Something that lives as long as the manager: :meth:`start` runs until cancelled, or until its work is done.

    If :meth:`start` raises an error, the manager stops. This includes a ``CancelledError`` that the group has not
    caused.

    A runnable may also implement some of these methods. ``async ready()`` returns when others may rely on the runnable.
    ``stop()`` asks the runnable to end; a runnable without this method is cancelled. ``need_leader_election() -> bool``
    returns False if the runnable also runs on followers; without this method, it runs on the leader only. ``async
    warm_up()`` is called for a runnable that runs on the leader only: one time, while the caches fill.
    """

    async def start(self) -> None:
        """Run."""


@runtime_checkable
class HasReady(Protocol):
    """A runnable that reports when it is ready."""

    async def ready(self) -> None: ...


@runtime_checkable
class StopsGracefully(Protocol):
    """A runnable that ends in its own order on request; :meth:`Runnable.start` returns soon after."""

    def stop(self) -> None: ...


@runtime_checkable
class LeaderElectionRunnable(Protocol):
    """A runnable that declares whether only a leader may run it."""

    def need_leader_election(self) -> bool: ...


@runtime_checkable
class WarmsUp(Protocol):
    """A runnable that can prepare itself before the manager is elected and starts it. The election does not wait."""

    async def warm_up(self) -> None: ...


class WarmUp:
    """A runnable that prepares another runnable."""

    def __init__(self, runnable: WarmsUp) -> None:
        self.name = f"warm-up of {describe(runnable)}"
        self._runnable = runnable

    async def start(self) -> None:
        """Prepare the runnable, and return."""
        await self._runnable.warm_up()


class _Member:
    """A runnable in a group, found by identity: runnables need not be hashable, and two may be equal."""

    def __init__(self, runnable: Runnable) -> None:
        self.runnable = runnable
        self.scope = anyio.CancelScope()
        self.left = anyio.Event()
        """Set when the runnable has ended, or was abandoned."""


class RunnableGroup:
    """Runnables that a manager starts in one step, and stops in one step.

    ``failed`` receives the first exception of each member. If the ``start`` of a member returns, its work is done; in a
    ``lasting`` group, this counts as a failure. Everything happens on one event loop.
    """

    def __init__(
        self, name: str, failed: Callable[[Runnable, Exception], None], *, lasting: bool = False
    ) -> None:
        self.name = name
        self._failed = failed
        self._lasting = lasting
        self._waiting: list[Runnable] = []
        self._running: list[_Member] = []
        self._tasks: TaskGroup | None = None
        self._stopping = False
        self._changed = anyio.Event()

    def add(self, runnable: Runnable) -> None:
        """Start ``runnable`` with the group, or now if the group has started.

        Raises:
            GroupStoppedError: the group is stopping, or has stopped.
        """
        if self._stopping:
            raise GroupStoppedError(f"{describe(runnable)} was added to {self.name} while stopping")
        if self._tasks is None:
            self._waiting.append(runnable)
        else:
            self._launch(self._tasks, runnable)

    async def start(self, tasks: TaskGroup) -> None:
        """Start all members in ``tasks``. Return when each is ready or has ended, or when the group is stopped."""
        if self._stopping:
            return
        self._tasks = tasks
        waiting, self._waiting = self._waiting, []
        members = [self._launch(tasks, runnable) for runnable in waiting]
        async with anyio.create_task_group() as readiness:
            for member in members:
                if isinstance(member.runnable, HasReady):
                    readiness.start_soon(self._until_ready, member, member.runnable.ready)

    async def stop(self) -> None:
        """Ask all members to end, and return when they have ended. If this call is cancelled, call :meth:`kill`."""
        self._stopping = True
        self._wake()
        for member in tuple(self._running):
            if isinstance(member.runnable, StopsGracefully):
                member.runnable.stop()
            else:
                member.scope.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Return when all members have ended."""
        while self._running:
            await self._changed.wait()

    def kill(self) -> list[str]:
        """Cancel all members that still run. If the group was stopping already, return their names."""
        asked, self._stopping = self._stopping, True
        self._wake()
        for member in self._running:
            member.scope.cancel()
        return self._names() if asked else []

    def abandon(self) -> list[str]:
        """Stop waiting for members that did not end after they were cancelled; return their names."""
        names = self._names()
        for member in self._running:
            member.left.set()
        return names

    def _names(self) -> list[str]:
        return [describe(member.runnable) for member in self._running]

    def _launch(self, tasks: TaskGroup, runnable: Runnable) -> _Member:
        member = _Member(runnable)
        self._running.append(member)
        tasks.start_soon(self._supervise, member, name=f"{self.name}: {describe(runnable)}")
        return member

    async def _supervise(self, member: _Member) -> None:
        # The member runs in its own task: a task group would have to wait for a member that is blocked in a thread.
        task = asyncio.create_task(self._run(member), name=f"{self.name}: {describe(member.runnable)}: start")
        try:
            await member.left.wait()
        except asyncio.CancelledError:
            member.scope.cancel()
            with anyio.CancelScope(shield=True):
                await member.left.wait()
            raise
        if task.done():
            task.result()  # raises the errors that _run does not handle

    async def _run(self, member: _Member) -> None:
        try:
            with member.scope:
                await member.runnable.start()
        except raised.STRAY_EXITS as error:
            if member.scope.cancel_called and isinstance(error, asyncio.CancelledError):
                raise
            self._report(member, raised.as_error(error))
        except Exception as error:
            self._report(member, error)
        else:
            if self._lasting and not self._stopping:
                text = f"{describe(member.runnable)} ended although it was not stopped"
                self._report(member, ManagerError(text))
        finally:
            self._running.remove(member)
            member.left.set()
            self._wake()

    def _wake(self) -> None:
        """Wake the tasks that wait until members are ready or have ended."""
        self._changed.set()
        self._changed = anyio.Event()

    def _report(self, member: _Member, error: Exception) -> None:
        if self._stopping:
            _log.error("Runnable failed while stopping", runnable=describe(member.runnable), error=error)
        else:
            self._failed(member.runnable, error)

    async def _until_ready(self, member: _Member, ready: Callable[[], Awaitable[None]]) -> None:
        """Return when ``member`` is ready, or has ended."""

        async def ended(scope: anyio.CancelScope) -> None:
            while member in self._running and not self._stopping:
                await self._changed.wait()
            scope.cancel()

        async with anyio.create_task_group() as race:
            race.start_soon(ended, race.cancel_scope)
            try:
                await ready()
            except raised.FAILURES as error:
                failure = raised.as_error(error)
                if not self._stopping:
                    self._failed(member.runnable, failure)
            race.cancel_scope.cancel()


def describe(runnable: object) -> str:
    """Return the name of a runnable in logs and errors: its ``name``, or the name of its class."""
    name = getattr(runnable, "name", "")
    return name if isinstance(name, str) and name else type(runnable).__name__


class CacheRunnable:
    """The cache as a runnable. It is ready when the cache is synced, which may take up to ``sync_timeout`` seconds."""

    name = "cache"

    def __init__(self, cache_: cache.Cache, sync_timeout: float) -> None:
        self._cache = cache_
        self._sync_timeout = sync_timeout

    async def start(self) -> None:
        """Run the cache."""
        await self._cache.start()

    async def ready(self) -> None:
        """Return when the caches are synced."""
        await self._cache.wait_for_sync(self._sync_timeout)
