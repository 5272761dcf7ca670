# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Simulations as tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Unpack

from .comparing import Life, difference
from .life import Outcome, run
from .loop import LeakError
from .searching import first_failure
from .shrinking import report, shrink
from .simulation import Simulation
from .steps import Size

SEEDS: Final = "SEEDS"
"""The environment variable that says how many seeds are tried, instead of the test's own number."""
SEED: Final = "SEED"
"""The environment variable that names the only seed to try."""


def simulate(
    *, seeds: int = 200, first: int = 0, tries: int = 200, **size: Unpack[Size]
) -> Callable[[Callable[[Simulation], None]], Callable[[], None]]:
    """Make a test of a scenario: a function that sets up managers, users and checks of a :class:`Simulation`.

    The test runs ``seeds`` lives of a ``size``. The first that fails is shrunk with at most ``tries`` more lives. Its
    steps and its timeline are the message of the AssertionError.
    A failed life is lived again, and so is the first: LeakError is raised if it is not the same. The lives are shared
    out over the machine's cores.
    """

    def decorate(scenario: Callable[[Simulation], None]) -> Callable[[], None]:
        def live(seed: int) -> Outcome:
            return run(scenario, seed, **size)

        def test() -> None:
            only = os.environ.get(SEED)
            count = int(os.environ.get(SEEDS, seeds))
            tried = [int(only)] if only else range(first, first + count)
            twice = list[Outcome]()
            found = first_failure(live, tried[1:], lambda: twice.extend(live(tried[0]) for _ in range(2)))
            outcome, again = twice
            _check_repeats(outcome, again)
            if outcome.failure is None and found is not None:
                outcome, again = live(found.seed), live(found.seed)
                _check_repeats(outcome, again)
                if found.digest != outcome.digest:
                    raise LeakError(
                        f"seed {found.seed} fails after other seeds only: something is kept between lives"
                    )
            if outcome.failure is None:
                return
            least = shrink(scenario, outcome, tries=tries, **size)
            raise AssertionError(report(least)) from least.failure

        test.__name__, test.__qualname__ = scenario.__name__, scenario.__qualname__
        test.__doc__, test.__module__ = scenario.__doc__, scenario.__module__
        test.scenario = scenario  # type: ignore[attr-defined]  # ``replay`` runs it
        test.size = size  # type: ignore[attr-defined]
        return test

    return decorate


def _check_repeats(outcome: Outcome, again: Outcome) -> None:
    if (found := difference(Life.of(outcome), Life.of(again))) is not None:
        failure = "" if outcome.failure is None else f"\nit had failed with: {outcome.failure}"
        raise LeakError(
            f"seed {outcome.seed} lives another life the second time: the program depends on something outside the "
            f"simulation, or keeps something between lives\n{found}{failure}"
        )
