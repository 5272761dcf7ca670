# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runnables that start and stop together.

A group's ``start`` returns once each of its members is ready; ``stop`` once each has ended. A member that
fails, at any time, is reported and ends everything: nobody runs half a manager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from pkg.ctrl import log

from .errors import GroupStoppedError

_log = log.logger_from("controller-runtime.manager")


class Runnable(Protocol):
    """Something that lives as long as the manager: :meth:`start` runs until cancelled or done.

    It may also offer ``async ready()``, which returns once others may rely on it; ``stop()``, which asks it
    to end by itself in its own order (else it is cancelled at once); ``need_leader_election() -> bool``
    (without it, it runs on the leader only); and ``async warm_up()``, which is awaited once, before the
    election, of what waits for it.
    """

    async def start(self) -> None:
        """Run."""
        ...


@runtime_checkable
class HasReady(Protocol):
    """Others wait for it."""

    async def ready(self) -> None:
        """Return once others may rely on it."""
        ...


@runtime_checkable
class StopsGracefully(Protocol):
    """It ends in its own order when asked."""

    def stop(self) -> None:
        """Ask it to end; :meth:`Runnable.start` returns soon after."""
        ...


@runtime_checkable
class LeaderElectionRunnable(Protocol):
    """It says whether only a leader may run it."""

    def need_leader_election(self) -> bool:
        """Whether to wait for being elected."""
        ...


@runtime_checkable
class WarmsUp(Protocol):
    """It can prepare for a start that waits for the election."""

    async def warm_up(self) -> None:
        """Prepare; the election does not wait for it."""
        ...


class WarmUp:
    """A runnable that is another one's preparation."""

    def __init__(self, runnable: WarmsUp) -> None:
        self.name = f"warm-up of {describe(runnable)}"
        self._runnable = runnable

    async def start(self) -> None:
        """Prepare, and end."""
        await self._runnable.warm_up()


class RunnableGroup:
    """One step of starting and stopping.

    ``failed`` is told the first exception of each member. Everything happens on one event loop.
    """

    def __init__(self, name: str, failed: Callable[[Runnable, Exception], None]) -> None:
        self.name = name
        self._failed = failed
        self._waiting: list[Runnable] = []
        self._running: dict[Runnable, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None
        self._stopping = False
        self._changed = anyio.Event()

    @property
    def started(self) -> bool:
        """Whether added runnables start at once."""
        return self._tasks is not None

    def add(self, runnable: Runnable) -> None:
        """Start ``runnable`` with the group, or now if that has started.

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
        """Start all members in ``tasks`` and return once each is ready, has ended, or the group is stopped."""
        if self._stopping:
            return
        self._tasks = tasks
        members, self._waiting = self._waiting, []
        for member in members:
            self._launch(tasks, member)
        async with anyio.create_task_group() as readiness:
            for member in members:
                if isinstance(member, HasReady):
                    readiness.start_soon(self._until_ready, member, member.ready)

    async def stop(self) -> None:
        """Ask all members to end and return once they have; cancelled, it leaves them to :meth:`kill`."""
        self._stopping = True
        for member, scope in list(self._running.items()):
            if isinstance(member, StopsGracefully):
                member.stop()
            else:
                scope.cancel()
        while self._running:
            await self._changed.wait()

    def kill(self) -> list[str]:
        """Cancel whatever still runs; return the names of those that had been asked to end and did not."""
        asked, self._stopping = self._stopping, True
        for scope in self._running.values():
            scope.cancel()
        return [describe(member) for member in self._running] if asked else []

    def _launch(self, tasks: TaskGroup, member: Runnable) -> None:
        self._running[member] = anyio.CancelScope()
        tasks.start_soon(self._supervise, member, name=f"{self.name}: {describe(member)}")

    async def _supervise(self, member: Runnable) -> None:
        try:
            with self._running[member]:
                await member.start()
        except Exception as error:
            if self._stopping:
                _log.error("Runnable failed while stopping", runnable=describe(member), error=error)
            else:
                self._failed(member, error)
        finally:
            del self._running[member]
            self._changed.set()
            self._changed = anyio.Event()

    async def _until_ready(self, member: Runnable, ready: Callable[[], Awaitable[None]]) -> None:
        """Return when ``member`` is ready, or will not be any more."""

        async def ended(scope: anyio.CancelScope) -> None:
            while member in self._running and not self._stopping:
                await self._changed.wait()
            scope.cancel()

        async with anyio.create_task_group() as race:
            race.start_soon(ended, race.cancel_scope)
            try:
                await ready()
            except Exception as error:
                if not self._stopping:
                    self._failed(member, error)
            race.cancel_scope.cancel()


def describe(runnable: object) -> str:
    """Return what logs and errors call a runnable: its own name, else its class's."""
    name = getattr(runnable, "name", "")
    return name if isinstance(name, str) and name else type(runnable).__name__
