# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""From a failing life to the few steps that make it fail, and to a text that a person can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Unpack

from .life import Outcome, run
from .simulation import Simulation
from .steps import Size

Scenario = Callable[[Simulation], None]
_LINES: Final = 60


def shrink(scenario: Scenario, found: Outcome, *, tries: int = 200, **size: Unpack[Size]) -> Outcome:
    """Leave steps out while the life still fails in the same way; return the shortest that was found.

    A step depends on its own seed alone, so the others stay as they were. At most ``tries`` lives are lived.
    """
    if found.failure is None:
        return found
    best, part = found, max(1, len(found.steps) // 2)
    while part and tries > 0:
        shorter = None
        for start in range(0, len(best.steps), part):
            if tries <= 0:
                break
            tries -= 1
            steps = [*best.steps[:start], *best.steps[start + part :]]
            outcome = run(scenario, found.seed, steps=steps, **size)
            if _same(outcome.failure, found.failure):
                shorter = outcome
                break
        if shorter is not None:
            best = shorter
            part = min(part, max(1, len(best.steps)))
            if not best.steps:
                break
        else:
            part //= 2
    return best


def report(outcome: Outcome, *, lines: int = _LINES) -> str:
    """Return the story of a failed life: the steps, the last lines of the timeline, the failure."""
    steps = "\n".join(f"  {step}" for step in outcome.steps) or "  none"
    shown = [line for line in outcome.timeline if not _is_routine(line.text)]
    timeline = "\n".join(map(str, shown[-lines:]))
    failure = outcome.failure
    notes = "".join(f"\n  {note}" for note in getattr(failure, "__notes__", ()))
    return (
        f"seed {outcome.seed} fails: {type(failure).__name__}: {failure}{notes}\n\n"
        f"steps:\n{steps}\n\n"
        f"timeline, its last {min(lines, len(shown))} lines of {len(shown)}, without lease renewals:\n{timeline}\n"
    )


def _is_routine(text: str) -> bool:
    """Return True for a read or a renewal of a lease that succeeded: most lines of a quiet life."""
    return "/leases/" in text and text.endswith("-> 200")


def _same(one: BaseException | None, other: BaseException | None) -> bool:
    return one is not None and type(one) is type(other) and _first(one) == _first(other)


def _first(error: BaseException | None) -> str:
    """Return the part of a message before the names of objects."""
    return str(error).partition(":")[0]
