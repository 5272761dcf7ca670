# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The size of a run and the programs that it measures, from the command line; each workload on managers gets a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from harness import interpreter

OURS: Final = "ours"
_PROGRAM: Final = f"{interpreter.as_image()} -m pkg.app --config={{config}}"


@dataclasses.dataclass(frozen=True, slots=True)
class Entrant:
    """A program to measure: a name, and a command with the placeholders ``{config}``, ``{metrics}`` and ``{health}``."""

    name: str
    command: str
    ours: bool = False
    """True for this project's manager of any commit: it knows more fields of the Configuration."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of objects."""

    jobs: tuple[int, ...] = (200, 1_000)
    """TrainJobs of a burst, and of a status fan-in: one measurement each."""
    few: int = 200
    """TrainJobs where the count matters less: other runtimes, paced arrivals."""
    existing: tuple[int, ...] = (0, 2_000)
    """TrainJobs that exist before a cold start."""
    pods: int = 1_000
    reviews: int = 1_000
    scale: int = 50_000
    """TrainJobs of the workload ``scale``."""


MODERATE: Final = Sizes()
QUICK: Final = Sizes(jobs=(5,), few=5, existing=(0, 5), pods=20, reviews=32, scale=60)
FULL: Final = Sizes(
    jobs=(200, 1_000, 3_000),
    few=500,
    existing=(0, 2_000, 10_000),
    pods=10_000,
    reviews=2_000,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The rounds, sizes and programs. The figures of the first program are divided by those of the others."""

    rounds: int
    sizes: Sizes = MODERATE
    managers: tuple[Entrant, ...] = (Entrant(OURS, _PROGRAM, ours=True),)
    groupers: tuple[Entrant, ...] = (Entrant(OURS, f"{_PROGRAM} --controllers=podgrouper", ours=True),)
    patience: float = 600.0
    """Seconds after which a manager that has not done its work counts as failed."""
    quiet: float = 2.0
    """Seconds without a request or computation after which a manager counts as settled."""


def quick() -> Plan:
    """Return a plan that only checks that everything works."""
    return Plan(rounds=1, sizes=QUICK, patience=60.0, quiet=0.5)


def entrants(
    default: Sequence[Entrant], given: Sequence[str], others: Sequence[Entrant] = ()
) -> tuple[Entrant, ...]:
    """Return our own program, ``others``, and those given as ``NAME=CMD``.

    Raises:
        ValueError: a program has no name or no command, or two have the same name.
    """
    found = [*default, *others]
    for each in given:
        name, _, command = each.partition("=")
        if not name or not command.strip():
            raise ValueError(f"{each!r} is not NAME=CMD")
        found.append(Entrant(name, command))
    if len({each.name for each in found}) < len(found):
        raise ValueError(f"two programs have the same name, or one is called {OURS!r}")
    return tuple(found)
