# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A budget of time for each namespace: what one namespace's pods cost may not delay the pods of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from controller_runtime.tokenbucket import TokenBucket

SHARE: Final = 0.1
"""Seconds of a worker that a namespace may take in each second, when it has spent what it saved."""
SAVED: Final = 1.0
"""Seconds that it may save."""
REQUEST: Final = 0.01
"""Seconds that a request costs at least: ten of them a second, after the first hundred."""
LONGEST: Final = 60.0
"""Seconds for which a pod is put off at most."""
NAMESPACES: Final = 1024
"""Accounts that are open at once; beyond, the half of them that owes least is closed."""


class OverBudgetError(Exception):
    """The namespace has used its share. The pod is well; it is looked at again after ``delay`` seconds."""

    def __init__(self, namespace: str, delay: float) -> None:
        super().__init__(f"namespace {namespace} has used its share; again in {delay:.1f} s")
        self.delay = delay


@dataclass(slots=True)
class _Account:
    balance: TokenBucket
    """Seconds; a negative balance is owed."""
    turn: float = 0.0
    """When the last of those that wait may come again."""


class Budget:
    """Accounts by namespace. Only what may go wrong, or is large, is charged: well-behaved pods cost nothing."""

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self._accounts)

    def check(self, namespace: str) -> None:
        """Return while the namespace has time left.

        Raises:
            OverBudgetError: it has none.
        """
        account = self._accounts.get(namespace)
        if account is not None and account.balance.tokens() <= 0:
            raise self.put_off(namespace)

    def put_off(self, namespace: str) -> OverBudgetError:
        """Return the error that gives a pod its turn, after those that wait already."""
        account = self._account(namespace)
        now = self._clock()
        first = now + account.balance.take(0)
        account.turn = min(max(account.turn, first) + REQUEST / SHARE, now + LONGEST)
        return OverBudgetError(namespace, account.turn - now)

    def spend(self, namespace: str, seconds: float) -> None:
        """Charge the namespace; it may end up owing."""
        self._account(namespace).balance.take(seconds)

    def _account(self, namespace: str) -> _Account:
        account = self._accounts.get(namespace)
        if account is None:
            if len(self._accounts) >= NAMESPACES:
                self._close()
            account = self._accounts[namespace] = _Account(TokenBucket(SHARE, SAVED, self._clock))
        return account

    def _close(self) -> None:
        """Make room for many more at once: this looks at all of them."""
        by_debt = sorted(self._accounts, key=lambda namespace: self._accounts[namespace].balance.tokens())
        self._accounts = {namespace: self._accounts[namespace] for namespace in by_debt[: NAMESPACES // 2]}
