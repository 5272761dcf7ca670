# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Limits on reads of owners: their duration, their number at a time, and the namespace that is charged."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
from controller_runtime.machinery import GVK
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import TransportTimeoutError

from pkg import metrics

from .budget import REQUEST, Budget

READ_TIMEOUT: Final = 5.0
"""Longest wait of a worker for an owner, in seconds."""
LARGE: Final = 64 * 2**10
"""Size in bytes above which decoding an owner is charged to its namespace."""
REFUSALS: Final = 1024
"""Most refusals cached."""
REFUSAL_TTL: Final = 10.0
"""Seconds for which a refusal is cached."""


class Costs:
    """Limits reads of owners and charges them to ``budget``.

    ``served`` fails for a kind that the server does not serve, so nothing is created or kept for invented kinds.
    Reads of kinds without a grouper are ``alone``: one at a time in a namespace, and always charged.
    """

    def __init__(self, served: Callable[[GVK], Awaitable[object]] | None, clock: Callable[[], float]) -> None:
        self._served = served
        self._clock = clock
        self.budget = Budget(clock)
        self._alone: set[str] = set()
        """Namespaces with such a read in progress."""
        self._refusals: dict[tuple[GVK, str], tuple[float, ForbiddenError]] = {}

    def check_turn(self, namespace: str, *, alone: bool) -> None:
        """Return if a read may begin.

        Raises:
            OverBudgetError: another read of the namespace is in progress.
        """
        if alone and namespace in self._alone:
            raise self.budget.put_off(namespace)

    def check_refusal(self, kind: GVK, namespace: str) -> None:
        """Return unless the server has recently refused to read ``kind`` in the namespace.

        Raises:
            ForbiddenError: the server refused. Permissions do not depend on the object's name.
        """
        refusal = self._refusals.get((kind, namespace))
        if refusal is not None and self._clock() < refusal[0]:
            raise refusal[1].with_traceback(None)  # each raise would add to the former ones' tracebacks

    @asynccontextmanager
    async def reading(self, kind: GVK, namespace: str, *, alone: bool) -> AsyncIterator[None]:
        """Read an owner from the server in the body, with a timeout. The read is charged if it fails or is alone.

        Raises:
            OverBudgetError: the namespace has used its share, or another read is in progress.
            TransportTimeoutError: the timeout expired.
        """
        self.budget.check(namespace)
        self.check_turn(namespace, alone=alone)
        started, failed = self._clock(), True
        if alone:
            self._alone.add(namespace)
        try:
            with anyio.fail_after(READ_TIMEOUT):
                if self._served is not None:
                    await self._served(kind)
                yield
            failed = False
        except TimeoutError as error:
            raise TransportTimeoutError(f"no answer within {READ_TIMEOUT:g} s", host="API server") from error
        except ForbiddenError as error:
            self._refuse(kind, namespace, error, "other" if alone else str(kind.group_kind))
            raise
        finally:
            if alone:
                self._alone.remove(namespace)
            if alone or failed:
                self.budget.spend(namespace, max(REQUEST, self._clock() - started))

    @contextmanager
    def decoding(self, namespace: str, text: bytes) -> Iterator[None]:
        """Decode an owner in the body; the CPU time of a large one is charged.

        Raises:
            OverBudgetError: the owner is large and the namespace has used its share.
        """
        if len(text) <= LARGE:
            yield
            return
        self.budget.check(namespace)
        started = time.thread_time()
        yield
        self.budget.spend(namespace, time.thread_time() - started)

    def _refuse(self, kind: GVK, namespace: str, error: ForbiddenError, label: str) -> None:
        if len(self._refusals) >= REFUSALS:
            self._refusals.pop(next(iter(self._refusals)))
        self._refusals[kind, namespace] = self._clock() + REFUSAL_TTL, error
        metrics.OWNERS_UNREADABLE.labels(label).inc()
