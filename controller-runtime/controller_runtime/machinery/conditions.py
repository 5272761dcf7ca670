# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Read and change lists of conditions.

A list has one condition per type. The transition time of a condition changes only when its status changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from .meta import Condition, format_time


def set_status_condition(
    conditions: list[Condition], new: Condition, now: Callable[[], datetime] | datetime | None = None
) -> bool:
    """Add ``new``, or update the condition of the same type; return True if ``conditions`` changed.

    An added condition, or a condition whose status changes, gets the transition time of ``new``. If ``new`` has no
    transition time, the condition gets ``now``, which is the current time by default. The list does not keep a
    reference to ``new``.
    """
    given: object = conditions
    if given is None:
        raise TypeError("there is no list of conditions yet: set status.conditions to a list first")
    existing = find(conditions, new.type)
    if existing is None:
        added = new.deep_copy()
        added.last_transition_time = new.last_transition_time or _stamp(now)
        conditions.append(added)
        return True
    changed = False
    if existing.status != new.status:
        existing.status = new.status
        existing.last_transition_time = new.last_transition_time or _stamp(now)
        changed = True
    if existing.reason != new.reason:
        existing.reason = new.reason
        changed = True
    if existing.message != new.message:
        existing.message = new.message
        changed = True
    if (existing.observed_generation or 0) != (new.observed_generation or 0):
        existing.observed_generation = new.observed_generation
        changed = True
    return changed


def find(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    """Return the condition of a type, or None."""
    for condition in conditions or ():
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition] | None, type_: str) -> bool:
    """Return True if the condition exists and its status is True."""
    return has_status(conditions, type_, "True")


def is_false(conditions: Iterable[Condition] | None, type_: str) -> bool:
    """Return True if the condition exists and its status is False."""
    return has_status(conditions, type_, "False")


def has_status(conditions: Iterable[Condition] | None, type_: str, status: str) -> bool:
    """Return True if the condition exists with this status."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == status


def remove(conditions: list[Condition], type_: str) -> bool:
    """Remove the conditions of a type from the list; return True if there were any."""
    kept = [condition for condition in conditions if condition.type != type_]
    removed = len(kept) != len(conditions)
    conditions[:] = kept
    return removed


def _stamp(now: Callable[[], datetime] | datetime | None) -> str:
    moment = now() if callable(now) else now
    return format_time(moment or datetime.now(UTC))
