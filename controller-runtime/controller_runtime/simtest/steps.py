# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Of a life: its size, the options of its managers, the steps drawn for it, and the lines of its timeline."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from controller_runtime.manager import Options

_STORM: Final = 6.0
"""How long a storm lasts, in seconds, on average."""
_IN_STORMS: Final = 0.75
"""The part of the steps that happen in storms."""


def options(**others: Any) -> Options:
    """Return options of a manager in a simulation: with leader election, without servers; ``others`` are added.

    Leases last longer than by default: most of the work of a life would be their renewal.
    """
    given: dict[str, Any] = {
        "leader_election": True,
        "leader_election_id": "simulated",
        "leader_election_namespace": "default",
        "lease_duration": 30.0,
        "renew_deadline": 20.0,
        "retry_period": 5.0,
        "metrics_bind_address": "0",
        "health_probe_bind_address": "0",
    }
    return Options(**given | others)


OPTIONS: Final = options()


class Size(TypedDict, total=False):
    """How much happens in a life."""

    minutes: float
    """How long it is, in virtual minutes; ten by default."""
    faults: float
    """How many faults there are, on average; twelve by default."""
    actions: float
    """The part of the users' actions that happens; all of them by default."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done to the cluster, at a time."""

    at: float
    name: str
    seed: int
    """The seed of the step's own generator: its draws do not depend on other steps."""

    def __str__(self) -> str:
        return f"t={self.at:8.3f}  {self.name} ({self.seed})"


@dataclass(slots=True)
class Line:
    """One line of the timeline."""

    at: float
    actor: str
    text: str
    state: int = field(default=0, repr=False)
    """The loop's digest by then."""

    def __str__(self) -> str:
        return f"{self.at:10.4f}  {self.actor:16} {self.text}"


def spread(
    rng: random.Random, name: str, times: float, length: float, storms: Sequence[float]
) -> Iterable[Step]:
    """Draw about ``times`` steps over ``length`` seconds, most of them in storms: faults come together."""
    for _ in range(int(times) + (rng.random() < times % 1)):
        at = rng.random() * length
        if rng.random() < _IN_STORMS:
            at = min(length, rng.choice(storms) + rng.expovariate(1 / _STORM))
        yield Step(round(at, 3), name, rng.getrandbits(32))
