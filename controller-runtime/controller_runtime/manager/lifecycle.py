# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a manager runs: runnables in groups, the order in which the groups start and stop, and the errors of both.

``start`` of a group returns when all its members are ready, and ``stop`` returns when all have ended. If a member fails
at any time, the failure is reported and the whole manager stops: a manager never runs with only some of its members.

ManagerError                      the options contradict each other, or the component named in the message failed
├── UnreachableError              the API server was never reached
├── CredentialsError              the API server does not accept the credentials
├── LostLeadershipError           another replica leads, or may lead soon: end the process
├── GroupStoppedError             a runnable was added while the manager stops
└── GracePeriodExceededError      a runnable did not end in time
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from controller_runtime import cache, fairness, log
from controller_runtime.machinery import raised

if TYPE_CHECKING:
    from controller_runtime import leaderelection

_CANCEL_TIMEOUT: Final = 2.0
"""Seconds to wait until cancelled runnables have ended. After that they are abandoned, because code in a thread cannot
be cancelled."""

_UNTOLD_WAIT: Final = 5.0
"""Seconds for which the stop waits for a group before it says for which runnables."""

_log = log.logger_from("controller-runtime.manager")


class ManagerError(Exception):
    """The manager could not start, or one of its components failed."""


class UnreachableError(ManagerError):
    """The API server did not answer."""


class CredentialsError(ManagerError):
    """The API server answered the first request with 401."""


class LostLeadershipError(ManagerError):
    """The lease could not be renewed. Everything was cancelled at once, without the grace period."""


class GroupStoppedError(ManagerError):
    """A runnable was added to a group that is stopping."""


class GracePeriodExceededError(ManagerError):
    """A runnable did not end in time, so it was cancelled."""


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
        self._start_soon: Callable[..., object] | None = None
        """Starts the task of a member in the context of :meth:`start`. None before the start."""
        self._stopping = False
        self._changed = anyio.Event()

    @property
    def running(self) -> list[str]:
        """The names of the members that have not ended."""
        return [describe(member.runnable) for member in self._running]

    def add(self, runnable: Runnable) -> None:
        """Start ``runnable`` with the group, or now if the group has started.

        Raises:
            GroupStoppedError: the group is stopping, or has stopped.
        """
        if self._stopping:
            raise GroupStoppedError(f"{describe(runnable)} was added to {self.name} while stopping")
        if self._start_soon is None:
            self._waiting.append(runnable)
        else:
            self._launch(self._start_soon, runnable)

    async def start(self, tasks: TaskGroup) -> None:
        """Start all members in ``tasks``. Return when each is ready or has ended, or when the group is stopped.

        It must not be called after :meth:`stop`.
        """
        self._start_soon = start_soon = fairness.in_this_context(tasks.start_soon)
        waiting, self._waiting = self._waiting, []
        members = [self._launch(start_soon, runnable) for runnable in waiting]
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
        return self.running if asked else []

    def abandon(self) -> list[str]:
        """Stop waiting for members that did not end after they were cancelled; return their names."""
        names = self.running
        for member in self._running:
            member.left.set()
        return names

    def _launch(self, start_soon: Callable[..., object], runnable: Runnable) -> _Member:
        member = _Member(runnable)
        self._running.append(member)
        start_soon(self._supervise, member, name=f"{self.name}: {describe(runnable)}")
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
            self._report(member, raised.readable(error))
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
                with raised.foreign():
                    await ready()
            except Exception as error:
                was_cancelled = anyio.current_effective_deadline() == -math.inf
                if not (self._stopping or was_cancelled):
                    self._failed(member.runnable, error)
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


class Lifecycle:
    """Groups of runnables in order. Each group starts when the previous one is ready. Within ``grace`` seconds, all
    groups stop in order.

    ``connect`` is awaited before the webhooks start. With an ``elector``, the last group starts when this process is
    elected. After the groups have stopped, the lease is released, but only if ``may_release`` returns True.
    """

    def __init__(
        self,
        *,
        grace: float,
        connect: Callable[[], Awaitable[None]],
        elector: leaderelection.Elector | None,
        may_release: Callable[[], bool],
        on_elected: Callable[[leaderelection.Elector], None],
    ) -> None:
        self.events = RunnableGroup("events", self._member_failed, lasting=True)
        self.servers = RunnableGroup("servers", self._member_failed, lasting=True)
        self.webhooks = RunnableGroup("webhooks", self._member_failed, lasting=True)
        self.caches = RunnableGroup("caches", self._member_failed, lasting=True)
        self.others = RunnableGroup("others", self._member_failed)
        self.warm_up = RunnableGroup("warm-up", self._member_failed)
        self.leader_elected = RunnableGroup("leader-elected", self._member_failed)
        self._election = RunnableGroup("leader-election", self._member_failed, lasting=True)
        self.stop = anyio.Event()
        self.elected = anyio.Event()
        self.synced = False
        self.abandoned: list[str] = []
        self._grace = grace
        self._connect = connect
        self._elector = elector
        self._may_release = may_release
        self._on_elected = on_elected
        self._failure: ManagerError | None = None
        if elector is not None:
            self._election.add(_Candidate(elector, self._won))
        self._has_won = False
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Start everything, wait until ``stop`` is set or something fails, and stop everything.

        Cancelling this call has no effect: the caller must set ``stop``.

        Raises:
            ManagerError: the first failure.
        """
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as self._tasks:
                async with anyio.create_task_group() as until_stop:
                    until_stop.start_soon(self._cancel_at_stop, until_stop.cancel_scope)
                    try:
                        await self._start(self._tasks)
                    except raised.STRAY_EXITS as error:
                        self._fail(ManagerError(f"start: {raised.as_error(error)}"))
                await self._stop_in_order()
        if self._failure is not None:
            raise self._failure

    async def _cancel_at_stop(self, scope: anyio.CancelScope) -> None:
        await self.stop.wait()
        scope.cancel()

    async def _start(self, tasks: TaskGroup) -> None:
        _log.info("Starting manager")
        await self.events.start(tasks)
        await self.servers.start(tasks)
        try:
            await self._connect()
        except ManagerError as error:
            self._fail(error)
            return
        await self.webhooks.start(tasks)
        # The warm-up lists the kinds of controllers at the same time as the caches list theirs. The start waits only
        # for the caches.
        async with anyio.create_task_group() as both:
            both.start_soon(self.caches.start, tasks)
            both.start_soon(self.warm_up.start, tasks)
        self.synced = not self.stop.is_set()
        await self.others.start(tasks)
        if self._elector is None:
            await self._lead(tasks)
        else:
            await self._election.start(tasks)

    async def _lead(self, tasks: TaskGroup) -> None:
        if self.stop.is_set():  # the lease was won at the same moment
            return
        await self.leader_elected.start(tasks)
        if not self.stop.is_set():
            self.elected.set()

    def _won(self, elector: leaderelection.Elector) -> None:
        self._has_won = True
        self._on_elected(elector)
        if self._tasks is not None:
            # Start in a separate task, because renewals must not wait until everything is ready.
            self._tasks.start_soon(self._lead, self._tasks)

    async def _stop_in_order(self) -> None:
        grace = self._grace
        if isinstance(self._failure, LostLeadershipError):
            # Another replica may act now: send no more requests.
            self.leader_elected.kill()
            grace = 0
        # Webhooks stop after the caches that they read. A stopped cache still answers, so pending reviews complete.
        order = [self.others, self.leader_elected, self.warm_up, self.caches, self.webhooks, self.servers]
        if self._elector is not None and not self._has_won:  # a candidate would take the lease while stopping
            order.insert(0, self._election)
        with anyio.move_on_after(None if grace < 0 else grace) as within:
            for group in order:
                _log.info("Stopping and waiting", group=group.name)
                told = asyncio.get_running_loop().call_later(_UNTOLD_WAIT, self._tell_who_runs, group)
                try:
                    await group.stop()
                finally:
                    told.cancel()
        if within.cancelled_caught:
            late = [name for group in order for name in group.kill()]
            if late and grace > 0:
                text = f"failed waiting for all runnables to end within grace period of {grace:g} s: "
                self._fail(GracePeriodExceededError(text + ", ".join(late)))
            await self._abandon_remaining(order)
        await self._step_down()
        await self.events.stop()
        _log.info("Manager stopped")

    def _tell_who_runs(self, group: RunnableGroup) -> None:
        limit = {"limit": self._grace} if self._grace >= 0 else {}
        _log.warning("Waiting for runnables to end", group=group.name, runnables=group.running, **limit)

    async def _abandon_remaining(self, groups: list[RunnableGroup]) -> None:
        """Wait briefly for cancelled runnables to end, then abandon them."""
        with anyio.move_on_after(_CANCEL_TIMEOUT):
            for group in groups:
                await group.ended()
        self.abandoned = [name for group in groups for name in group.abandon()]
        if self.abandoned:
            _log.error("Runnables do not end although cancelled", runnables=self.abandoned)

    async def _step_down(self) -> None:
        """Release the lease. If it was lost, or if a runnable or a write may still be under way, let it expire."""
        if self._elector is None:
            return
        await self._election.stop()
        if self.abandoned or isinstance(self._failure, LostLeadershipError) or not self._may_release():
            return
        await self._elector.release()

    def _member_failed(self, member: Runnable, error: Exception) -> None:
        from controller_runtime import leaderelection  # here: a manager without an election does not need it

        if not isinstance(error, (ManagerError, leaderelection.LeaderElectionLostError)):
            if not raised.is_expected(error):
                _log.error("Runnable failed", runnable=describe(member), error=error)
            failure = ManagerError(f"{describe(member)}: {log.describe(error)}")
            failure.__cause__ = error
        elif isinstance(error, ManagerError):
            failure = error
        else:
            failure = LostLeadershipError(log.describe(error))
            failure.__cause__ = error
        self._fail(failure)

    def _fail(self, error: ManagerError) -> None:
        if self._failure is None:
            self._failure = error
        else:
            _log.error("Another error while stopping", error=error)
        self.stop.set()


class _Candidate:
    """The runnable that acquires the lease, reports that this process leads, and renews the lease."""

    name = "leader election"

    def __init__(
        self,
        elector: leaderelection.Elector,
        won: Callable[[leaderelection.Elector], None],
    ) -> None:
        self._elector = elector
        self._won = won

    async def start(self) -> None:
        await self._elector.acquire()
        self._won(self._elector)
        await self._elector.renew()
