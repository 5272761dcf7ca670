# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measure wall and CPU seconds, in rounds in which alternatives take turns, and in child processes."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[4]
_SUITE: Final = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """The seconds that something took this process. On a shared machine, CPU seconds vary less than wall seconds."""

    wall: float
    cpu: float


class Clock:
    """Measures the time since its creation or the last :meth:`restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Collect garbage, and start again."""
        gc.collect()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Spent:
        """Return the seconds spent so far."""
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


Arm = Callable[[int], Awaitable[Spent]]


async def take_turns(rounds: int, arms: Mapping[str, Arm]) -> dict[str, list[Spent]]:
    """Run every arm once in each round, in a changing order; return the seconds that each arm spent, round by round.

    A round before the first one warms everything up and is not counted.
    """
    spent: dict[str, list[Spent]] = {name: [] for name in arms}
    names = list(arms)
    for number in range(rounds + 1):
        for name in names:
            used = await arms[name](number)
            if number:
                spent[name].append(used)
        names = names[1:] + names[:1]
    return spent


def in_child(*arguments: str) -> Any:
    """Run Python with ``arguments`` in a new process, and return the decoded JSON that it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def child_environment() -> dict[str, str]:
    """Return the environment in which a child process finds this suite and the product."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            map(str, (ROOT, _SUITE, ROOT / "controller-runtime", ROOT / "trainerctl"))
        ),
    }
