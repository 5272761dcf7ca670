# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Simulations as tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from .shrinking import report, shrink
from .simulation import Simulation, run

SEEDS: Final = "SEEDS"
"""The environment variable that says how many seeds are tried, instead of what the test says."""
SEED: Final = "SEED"
"""The environment variable that names the only seed to try."""


def simulate(
    *, seeds: int = 200, minutes: float = 10.0, faults: float = 12.0, first: int = 0, tries: int = 200
) -> Callable[[Callable[[Simulation], None]], Callable[[], None]]:
    """Make a test of a scenario: a function that sets up managers, users and checks of a :class:`Simulation`.

    The test runs ``seeds`` lives of so many virtual ``minutes``, with about ``faults`` faults each. The first that
    fails is shrunk with at most ``tries`` more lives. Its steps and its timeline are the message of the AssertionError.
    """

    def decorate(scenario: Callable[[Simulation], None]) -> Callable[[], None]:
        def test() -> None:
            only = os.environ.get(SEED)
            count = int(os.environ.get(SEEDS, seeds))
            for seed in [int(only)] if only else range(first, first + count):
                outcome = run(scenario, seed, minutes=minutes, faults=faults)
                if outcome.failure is not None:
                    least = shrink(scenario, outcome, tries=tries, minutes=minutes)
                    raise AssertionError(report(least)) from least.failure

        test.__name__, test.__qualname__ = scenario.__name__, scenario.__qualname__
        test.__doc__, test.__module__ = scenario.__doc__, scenario.__module__
        test.scenario = scenario  # type: ignore[attr-defined]  # what ``replay`` runs
        return test

    return decorate
