# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of the calm part of a life: an action, sometimes a short disturbance, and the time until a manager follows."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from controller_runtime.simtest import Simulation

Act = Callable[[Simulation, random.Random], Awaitable[None]]
_IN_TIME: Final = 90.0
"""Seconds within which a manager must follow, including the time that the models of other controllers take."""
_DISTURBED: Final = 0.4
_DISTURBANCES: Final = ("refused", "unavailable", "pages", "lost", "conflicts", "garbled")


def about(name: str, act: Any) -> Act:
    """Return the action ``act`` for the object with this name."""

    async def act_about(sim: Simulation, rng: random.Random) -> None:
        await act(sim, rng, name)

    act_about.__name__ = act.__name__
    return act_about


async def perform(sim: Simulation, rng: random.Random, act: Act) -> None:
    """Perform an action; in some steps, requests fail for some seconds or watches break during the action."""
    sim.record("calm", act.__name__)
    try:
        async with anyio.create_task_group() as group:
            if rng.random() < _DISTURBED:
                group.start_soon(_disturb, sim, rng)
            await act(sim, rng)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def settled(sim: Simulation, act: Act, problem: Callable[[], Awaitable[str | None]]) -> None:
    """Return when ``problem`` returns None.

    Raises:
        AssertionError: ``problem`` still returns a text after too long a time, or a rule was broken.
    """
    until = sim.loop.time() + _IN_TIME
    while (found := await problem()) is not None:
        assert sim.loop.time() < until, f"the manager does not follow: {found} (after {act.__name__})"
        await anyio.sleep(2.0)
    if sim.failures:
        raise sim.failures[0]


async def _disturb(sim: Simulation, rng: random.Random) -> None:
    """Let requests fail for some seconds, or break all watches once."""
    if rng.random() < 0.3:
        sim.server.watches.cut()
        return
    name = rng.choice(_DISTURBANCES)
    setattr(sim.network.faults, name, rng.choice([0.3, 0.8]))
    await anyio.sleep(rng.uniform(0.5, 5.0))
    setattr(sim.network.faults, name, 0.0)
