# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from pkg.podgrouper.budget import LONGEST, MAX_ACCOUNTS, REQUEST, SAVED, SHARE, Budget, OverBudgetError
from testkit.grouping import Clock


@pytest.fixture
def budget(clock: Clock) -> Budget:
    return Budget(clock)


def spent(budget: Budget, namespace: str) -> int:
    """Spend requests of the namespace until the budget refuses one; return how many were allowed."""
    number = 0
    while True:
        try:
            budget.check(namespace)
        except OverBudgetError:
            return number
        budget.spend(namespace, REQUEST)
        number += 1


def test_a_namespace_that_was_never_charged_has_no_account(budget: Budget) -> None:
    budget.check("a")
    assert len(budget) == 0


def test_what_is_saved_may_be_spent_at_once_and_then_a_share_of_each_second(
    budget: Budget, clock: Clock
) -> None:
    assert spent(budget, "a") == pytest.approx(SAVED / REQUEST, abs=1)
    clock.now += 1
    assert spent(budget, "a") == pytest.approx(SHARE / REQUEST, abs=1)
    clock.now += 10_000
    assert spent(budget, "a") == pytest.approx(SAVED / REQUEST, abs=1)


def test_one_namespace_does_not_spend_what_another_has(budget: Budget) -> None:
    budget.spend("a", 1000)
    budget.check("b")


def test_a_debt_is_paid_before_anything_else(budget: Budget, clock: Clock) -> None:
    budget.spend("a", SAVED + 5)
    clock.now += 5 / SHARE - 1
    with pytest.raises(OverBudgetError):
        budget.check("a")
    clock.now += 2
    budget.check("a")


def test_those_that_wait_come_one_after_another_and_none_waits_too_long(budget: Budget) -> None:
    delays = [budget.put_off("a").delay for _ in range(10_000)]

    assert delays[:3] == pytest.approx([REQUEST / SHARE, 2 * REQUEST / SHARE, 3 * REQUEST / SHARE])
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST
    assert budget.put_off("b").delay == pytest.approx(REQUEST / SHARE)


def test_accounts_that_owe_nothing_are_closed(budget: Budget, clock: Clock) -> None:
    budget.spend("debtor", 10_000)
    for number in range(10_000):
        budget.spend(f"ns-{number}", REQUEST)
        clock.now += 0.005

    assert len(budget) <= MAX_ACCOUNTS
    with pytest.raises(OverBudgetError):
        budget.check("debtor")


def test_waits_of_several_workers_do_not_put_a_namespace_off_for_longer_than_a_minute(
    budget: Budget, clock: Clock
) -> None:
    """Ten workers that wait five seconds each for an unavailable server spend fifty seconds of the budget."""
    for _ in range(10):
        budget.spend("team", 5.0)
    with pytest.raises(OverBudgetError):
        budget.check("team")
    clock.now += LONGEST + 1
    budget.check("team")
