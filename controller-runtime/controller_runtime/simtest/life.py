# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lives the life of a seed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

from .loop import CURRENT, START, SimLoop
from .sealed import sealed
from .simulation import Simulation
from .steps import Line, Size, Step


@dataclass(frozen=True)
class Outcome:
    """How a life ended."""

    seed: int
    steps: Sequence[Step]
    failure: BaseException | None
    timeline: Sequence[Line]
    digest: str
    callbacks: int
    trace: Sequence[str] = ()
    """The callbacks by name, if the life was traced."""


def run(
    scenario: Callable[[Simulation], None],
    seed: int,
    *,
    steps: Sequence[Step] | None = None,
    trace: bool = False,
    **size: Unpack[Size],
) -> Outcome:
    """Live the life of a seed: with the steps given, or those that the seed draws; ``trace`` names each callback."""
    loop = SimLoop(random.Random(f"{seed}/order"))
    if trace:
        loop.trace = []
    loop.set_exception_handler(lambda *_: None)  # tasks of killed processes never end
    collecting = gc.isenabled()
    gc.disable()
    logging.disable(logging.CRITICAL)
    failure: BaseException | None = None
    simulation: Simulation | None = None
    planned: Sequence[Step] = steps or ()
    asyncio.set_event_loop(loop)
    try:
        with sealed(loop, random.Random(f"{seed}/entropy"), drift=_drift) as leaks:
            simulation = Simulation(seed, loop, **size)
            scenario(simulation)
            planned = simulation.plan() if steps is None else steps
            try:
                loop.run_until_complete(simulation.live(planned))
            except Exception as error:
                failure = error
            if leaks:
                failure = leaks[0]
            digest = simulation.digest
            _put_away(loop, simulation)
    finally:
        logging.disable(logging.NOTSET)
        asyncio.set_event_loop(None)
        with contextlib.suppress(RuntimeError):
            loop.close()
        if collecting:
            gc.enable()
    return Outcome(seed, list(planned), failure, simulation.timeline, digest, loop.steps, loop.trace or ())


def _drift() -> float:
    process = CURRENT.get()
    if process is None:
        return 0.0
    return process.drift + process.rate * (asyncio.get_running_loop().time() - START)


def _put_away(loop: SimLoop, simulation: Simulation) -> None:
    """Drop all callbacks and tasks: nothing of a life runs after its end."""
    loop.drop_all()
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    simulation._tasks.clear()
