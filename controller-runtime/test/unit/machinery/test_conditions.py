# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Conditions."""

from datetime import UTC, datetime

from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import conditions
from controller_runtime.machinery.meta import parse_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def suspended(status: str, message: str = "m", generation: int | None = None) -> Condition:
    return Condition(
        type="Suspended", status=status, reason="R", message=message, observed_generation=generation
    )


def test_a_new_condition_is_added_and_stamped_and_the_argument_left_alone() -> None:
    held: list[Condition] = []
    new = suspended("True")
    assert conditions.set_status_condition(held, new, lambda: NOON)
    assert held[0].last_transition_time == "2026-01-01T12:00:00Z"
    assert new.last_transition_time is None


def test_the_time_is_that_of_the_clock_by_default() -> None:
    held: list[Condition] = []
    before = datetime.now(UTC).replace(microsecond=0)
    assert conditions.set_status_condition(held, suspended("True"))
    assert before <= parse_time(held[0].last_transition_time or "") <= datetime.now(UTC)


def test_the_time_moves_only_with_the_status() -> None:
    held: list[Condition] = []
    conditions.set_status_condition(held, suspended("True"), NOON)
    assert conditions.set_status_condition(held, suspended("True", "other"), LATER)
    new = suspended("True", "other")
    new.reason = "S"
    assert conditions.set_status_condition(held, new, LATER)
    assert (held[0].reason, held[0].message) == ("S", "other")
    assert held[0].last_transition_time == "2026-01-01T12:00:00Z"
    assert conditions.set_status_condition(held, suspended("False", "other"), LATER)
    assert held[0].last_transition_time == "2026-01-01T13:00:00Z"
    assert len(held) == 1


def test_nothing_new_changes_nothing_and_asks_no_clock() -> None:
    held: list[Condition] = []
    conditions.set_status_condition(held, suspended("True"), NOON)

    def never() -> datetime:
        raise AssertionError("the clock was read")

    assert not conditions.set_status_condition(held, suspended("True", generation=0), never)
    assert conditions.set_status_condition(held, suspended("True", generation=2), never)
    assert held[0].observed_generation == 2


def test_a_given_transition_time_is_kept() -> None:
    held: list[Condition] = []
    new = suspended("True")
    new.last_transition_time = "2020-01-01T00:00:00Z"
    conditions.set_status_condition(held, new, NOON)
    assert held[0].last_transition_time == "2020-01-01T00:00:00Z"


def test_finding_asking_and_removing() -> None:
    failed = b'{"type": "Failed", "status": "False", "reason": "R", "message": "m"}'
    held = [suspended("True"), Condition.from_json(failed)]
    assert conditions.is_true(held, "Suspended")
    assert conditions.is_false(held, "Failed")
    assert not conditions.is_true(held, "Complete")
    assert not conditions.is_true(None, "Complete")
    assert conditions.find(held, "Failed") is held[1]
    assert conditions.remove(held, "Failed")
    assert not conditions.remove(held, "Failed")
    assert [each.type for each in held] == ["Suspended"]
