# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fair queuing: namespaces take turns wherever work waits, so that no namespace waits for the backlog of another.

Work waits at three places: requests of a controller wait for a worker (:mod:`controller_runtime.workqueue`), work on
large objects waits for a thread (:mod:`controller_runtime.offload`), and requests to the API server wait for a token of
the client's rate limit (:mod:`controller_runtime.rest`). The last two need to know for which namespace a task works.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final

import msgspec

from controller_runtime import log
from controller_runtime.machinery.lru import LRU

LONG: Final = 1.0
"""A wait of more than this many seconds is logged."""
REPORT_PERIOD: Final = 60.0
"""The long waits of a namespace are logged at most once in this many seconds."""
_MOST_REPORTED: Final = 1024

_log: Final = log.logger_from("fairness")


class Tenant(msgspec.Struct, frozen=True, eq=False):
    """The namespace that the current task works for. The tasks that it starts work for the same namespace."""

    namespace: str = ""
    is_review: bool = False


_tenant: Final[ContextVar[Tenant]] = ContextVar("tenant", default=Tenant())  # noqa: B039  # it is frozen


def tenant() -> Tenant:
    """Return the tenant of the current task. Its namespace is empty if the task does not work for a namespace."""
    return _tenant.get()


work_for: Final[Callable[[Tenant], object]] = _tenant.set
"""Set the tenant of the current task, and of the tasks that it starts from now on, until the next call."""


@contextmanager
def working_for(who: Tenant) -> Iterator[None]:
    """Set the tenant of the current task during the block."""
    token = _tenant.set(who)
    try:
        yield
    finally:
        _tenant.reset(token)


def in_this_context(call: Callable[..., object]) -> Callable[..., object]:
    """Return a function that runs ``call`` in a copy of the present context instead of the context of its caller.

    A task that outlives the reconcile or the review that starts it must not keep that one's tenant and log fields.
    """
    return partial(copy_context().run, call)


class FairQueue:
    """Tasks that wait for a resource. Namespaces take turns; within a namespace, the smallest work comes first."""

    def __init__(self, resource: str, give_back: Callable[[str], None]) -> None:
        """Make an empty queue. ``resource`` names the resource in metrics and logs.

        ``give_back`` is called with the namespace of a task that was admitted, and cancelled before it could run.
        """
        from controller_runtime import metrics  # slow to load, and a client without a rate limit has no line

        self._resource = resource
        self._give_back = give_back
        self._waiting: dict[str, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._numbers = itertools.count()
        self._seconds = metrics.TURN_WAIT.labels(resource)
        self._reported: LRU[str, float] = LRU(_MOST_REPORTED)

    def __bool__(self) -> bool:
        """Return True if a task waits, or was cancelled while it waited."""
        return bool(self._waiting)

    async def wait(self, namespace: str, size: int = 0) -> None:
        """Return when :meth:`admit` admits this task."""
        loop = asyncio.get_running_loop()
        began, admitted = loop.time(), loop.create_future()
        heapq.heappush(self._waiting.setdefault(namespace, []), (size, next(self._numbers), admitted))
        try:
            await admitted
        except BaseException:
            if admitted.done() and not admitted.cancelled():
                self._give_back(namespace)
            raise
        finally:
            self._observe(namespace, loop.time() - began)

    def admit(self, *, busy: Container[str] = ()) -> str | None:
        """Admit the task whose turn it is, and return its namespace. Namespaces in ``busy`` go on waiting.

        Return None if no task can be admitted.
        """
        for namespace in list(self._waiting):
            if namespace in busy:
                continue
            line = self._waiting.pop(namespace)
            while line:
                _, _, admitted = heapq.heappop(line)
                if admitted.done():  # its task was cancelled
                    continue
                admitted.set_result(None)
                if line:
                    self._waiting[namespace] = line  # behind all other namespaces
                return namespace
        return None

    def _observe(self, namespace: str, seconds: float) -> None:
        self._seconds.observe(seconds)
        if seconds <= LONG:
            return
        now = time.monotonic()
        if now - self._reported.get(namespace, -REPORT_PERIOD) < REPORT_PERIOD:
            return
        self._reported[namespace] = now
        _log.info(
            "Waited for a turn", namespace=namespace, resource=self._resource, seconds=round(seconds, 3)
        )
