# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which a manager's groups start and stop, and the errors that they report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from controller_runtime import leaderelection, log
from controller_runtime.machinery import raised

from .errors import GracePeriodExceededError, LostLeadershipError, ManagerError
from .runnable_group import Runnable, RunnableGroup, describe

_CANCEL_TIMEOUT: Final = 2.0
"""Seconds to wait until cancelled runnables have ended. After that they are abandoned, because code in a thread cannot
be cancelled."""

_log = log.logger_from("controller-runtime.manager")


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
        await self.leader_elected.start(tasks)
        if not self.stop.is_set():
            self.elected.set()

    def _won(self, elector: leaderelection.Elector) -> None:
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
        with anyio.move_on_after(None if grace < 0 else grace) as within:
            for group in order:
                _log.info("Stopping and waiting", group=group.name)
                await group.stop()
        if within.cancelled_caught:
            late = [name for group in order for name in group.kill()]
            if late and grace > 0:
                text = f"failed waiting for all runnables to end within grace period of {grace:g} s: "
                self._fail(GracePeriodExceededError(text + ", ".join(late)))
            await self._abandon_remaining(order)
        await self._step_down()
        await self.events.stop()
        _log.info("Manager stopped")

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
        # Compared by class: ``isinstance`` reads an attribute of the error, which may raise.
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
