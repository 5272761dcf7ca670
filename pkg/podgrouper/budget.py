# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A time budget for each namespace, so that the pods of one namespace do not delay those of another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio
from controller_runtime.machinery.tokenbucket import TokenBucket

T = TypeVar("T")

SHARE: Final = 0.1
"""Seconds of worker time that a namespace may use per second after it has spent its savings."""
SAVED: Final = 1.0
"""Maximum savings of a namespace, in seconds of worker time."""
REQUEST: Final = 0.01
"""Minimum cost of a request, in seconds. A namespace can send at most 100 requests at once, and then 10 per second."""
LONGEST: Final = 60.0
"""Maximum delay of a pod, in seconds."""
DEBT: Final = SHARE * LONGEST
"""Maximum debt of a namespace, in seconds of worker time. Several workers may wait for an unreachable server at the
same time; without the limit, the namespace would owe all of this time.
"""
MAX_ACCOUNTS: Final = 1024
"""Maximum number of accounts. Before it is exceeded, we close the half of the accounts with the highest balances."""
LARGE_TEXT: Final = 64 * 2**10
"""The time to decode a text of more than this many bytes is charged to the namespace of the text."""


class OverBudgetError(Exception):
    """The namespace has used its share. The pod is valid and is reconciled again after ``delay`` seconds."""

    def __init__(self, namespace: str, delay: float) -> None:
        super().__init__(f"namespace {namespace} has used its share of worker time; retry in {delay:.1f} s")
        self.delay = delay


@dataclass(slots=True)
class _Account:
    balance: TokenBucket
    """The balance in seconds of worker time. A negative balance is a debt."""
    turn: float = 0.0
    """Time at which the last delayed pod may be reconciled."""


class Budget:
    """One account for each namespace.

    Ordinary pods cost nothing. We charge for reads that fail, for reads of kinds that may not be watched, for decoding
    large objects, and for groups with many subgroups.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def __len__(self) -> int:
        """Return the number of accounts."""
        return len(self._accounts)

    def check(self, namespace: str) -> None:
        """Check that the namespace has time left.

        Raises:
            OverBudgetError: no time is left.
        """
        account = self._accounts.get(namespace)
        if account is not None and account.balance.tokens() <= 0:
            raise self.put_off(namespace)

    def put_off(self, namespace: str) -> OverBudgetError:
        """Return the error to raise for a pod that has to wait.

        Its ``delay`` puts the pod behind the pods of the namespace that already wait.
        """
        account = self._account(namespace)
        now = self._clock()
        first = now + account.balance.take(0)
        account.turn = min(max(account.turn, first) + REQUEST / SHARE, now + LONGEST)
        return OverBudgetError(namespace, account.turn - now)

    def spend(self, namespace: str, seconds: float) -> None:
        """Charge the namespace. The balance may become negative, but only down to ``-DEBT``.

        Pods of the namespace therefore wait for at most ``LONGEST`` seconds.
        """
        balance = self._account(namespace).balance
        balance.take(max(0.0, min(seconds, balance.tokens() + DEBT)))

    def decoded(self, namespace: str, text: bytes | None, decode: Callable[[], T]) -> T:
        """Call ``decode``, which decodes ``text``, and return its result.

        If ``text`` is large, the CPU time is charged to the namespace.

        Raises:
            OverBudgetError: the text is large and no time is left.
        """
        if text is None or len(text) <= LARGE_TEXT:
            return decode()
        self.check(namespace)
        started = time.thread_time()
        try:
            return decode()
        finally:
            self.spend(namespace, time.thread_time() - started)

    def _account(self, namespace: str) -> _Account:
        account = self._accounts.get(namespace)
        if account is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                # Half of the accounts are closed at once, because each time sorts all accounts.
                by_debt = sorted(self._accounts, key=lambda name: self._accounts[name].balance.tokens())
                self._accounts = {name: self._accounts[name] for name in by_debt[: MAX_ACCOUNTS // 2]}
            account = self._accounts[namespace] = _Account(TokenBucket(SHARE, SAVED, self._clock))
        return account
