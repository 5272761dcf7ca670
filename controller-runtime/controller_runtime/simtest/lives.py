# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run the life of a seed, compare two runs, shrink a failed life, search many seeds, and make tests of scenarios."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Unpack

import msgspec

from .faults import FAULTS
from .loop import CURRENT_PROCESS, LOOP_START, LeakError, SimLoop
from .sealed import sealed
from .simulation import Line, Simulation, Size, Step

Scenario = Callable[[Simulation], None]
SEEDS: Final = "SEEDS"
"""The environment variable that overrides how many seeds a test tries."""
FIRST_SEED: Final = "FIRST_SEED"
"""The environment variable that overrides the first of these seeds."""
SEED: Final = "SEED"
"""The environment variable that makes a test try only this seed."""
WORKERS: Final = "SIM_WORKERS"
"""The environment variable that sets how many processes search for failures."""
_BEFORE: Final = 5
"""Number of lines that are shown before the first difference."""
_LINES: Final = 60
_NUMBER: Final = struct.Struct("q")
_BATCH: Final = 50
"""Average number of lives in one process: the unfinished tasks of a life stay in memory until the process ends."""
_MOST: Final = 2000
"""Maximum number of seeds in one batch: they are all written to a pipe before a process reads from it."""


@dataclass(frozen=True)
class Outcome:
    """How a life ended."""

    seed: int
    steps: Sequence[Step]
    failure: BaseException | None
    timeline: Sequence[Line]
    digest: str
    trace: Sequence[str] = ()
    """The names of the callbacks, if the life was traced."""


def run(
    scenario: Scenario,
    seed: int,
    *,
    steps: Sequence[Step] | None = None,
    trace: bool = False,
    **size: Unpack[Size],
) -> Outcome:
    """Run the life of a seed. Without ``steps``, the seed determines the steps; ``trace`` records each callback."""
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
            simulation = Simulation(seed, loop, FAULTS, **size)
            scenario(simulation)
            planned = simulation.plan() if steps is None else steps
            try:
                loop.run_until_complete(simulation.live(planned))
            except Exception as error:
                failure = error
            if leaks:
                failure = leaks[0]
            digest = simulation.digest
            # Drop all callbacks and tasks, so that nothing runs after the end of a life.
            loop.drop_all()
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            simulation._tasks.clear()
    finally:
        logging.disable(logging.NOTSET)
        asyncio.set_event_loop(None)
        with contextlib.suppress(RuntimeError):
            loop.close()
        if collecting:
            gc.enable()
    return Outcome(seed, list(planned), failure, simulation.timeline, digest, loop.trace or ())


def _drift() -> float:
    process = CURRENT_PROCESS.get()
    if process is None:
        return 0.0
    return process.drift + process.rate * (asyncio.get_running_loop().time() - LOOP_START)


class Recording(msgspec.Struct, frozen=True):
    """The parts of a life that must be the same each time its seed is run."""

    seed: int
    digest: str
    lines: list[str]
    """The timeline. Each line contains the state of the loop, so two lines are equal only if everything before them was
    equal."""
    calls: list[str]
    """The names of the callbacks, if the life was traced."""

    @classmethod
    def of(cls, outcome: Outcome) -> Recording:
        """Return the parts of ``outcome`` that must repeat."""
        lines = [f"{line}  [{line.state:016x}]" for line in outcome.timeline]
        return cls(outcome.seed, outcome.digest, lines, list(outcome.trace))


def difference(one: Recording, other: Recording) -> str | None:
    """Return a description of the first difference of two lives of a seed, or None if they are the same."""
    if one.digest == other.digest:
        return None
    parts = [_first(one.lines, other.lines, "line")]
    if one.calls and other.calls:
        parts.append(_first(one.calls, other.calls, "callback"))
    return "\n".join(filter(None, parts)) or "the lives differ after their last lines"


def in_another_process(
    scenario: str, seeds: Sequence[int], arguments: Sequence[str], hash_seed: int
) -> Iterator[Recording]:
    """Run the lives of ``seeds`` in a new interpreter with ``PYTHONHASHSEED=hash_seed``, and yield them.

    Raises:
        subprocess.CalledProcessError: the interpreter failed.
    """
    command = [sys.executable, "-m", __package__ or "", "record", scenario, *map(str, seeds), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 -- this program
    for line in done.stdout.splitlines():
        yield msgspec.json.decode(line, type=Recording)


def _first(one: Sequence[str], other: Sequence[str], unit: str) -> str:
    """Return the first difference of two sequences, and the items before it."""
    for number, (here, there) in enumerate(zip_longest(one, other)):
        if here != there:
            before = "".join(f"    {text}\n" for text in one[max(0, number - _BEFORE) : number])
            return f"{unit} {number} differs:\n{before}  - {here}\n  + {there}"
    return ""


def shrink(scenario: Scenario, failed: Outcome, *, tries: int = 200, **size: Unpack[Size]) -> Outcome:
    """Repeat a failed life with fewer and fewer steps; return the shortest life that still fails in the same way.

    Leaving out a step does not change the others, because each step has its own seed. At most ``tries`` lives are run.
    """
    if failed.failure is None:
        return failed
    best, part = failed, max(1, len(failed.steps) // 2)
    while part and tries > 0:
        shorter = None
        for start in range(0, len(best.steps), part):
            if tries <= 0:
                break
            tries -= 1
            steps = [*best.steps[:start], *best.steps[start + part :]]
            outcome = run(scenario, failed.seed, steps=steps, **size)
            if _same(outcome.failure, failed.failure):
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
    """Return the text about a failed life: the failure, the steps, and the last lines of the timeline."""
    steps = "\n".join(f"  {step}" for step in outcome.steps) or "  none"
    # Without faults, most lines report a successful read or renewal of a lease.
    shown = [
        line for line in outcome.timeline if not ("/leases/" in line.text and line.text.endswith("-> 200"))
    ]
    timeline = "\n".join(map(str, shown[-lines:]))
    failure = outcome.failure
    notes = "".join(f"\n  {note}" for note in getattr(failure, "__notes__", ()))
    return (
        f"seed {outcome.seed} fails: {type(failure).__name__}: {failure}{notes}\n\n"
        f"steps:\n{steps}\n\n"
        f"timeline, its last {min(lines, len(shown))} lines of {len(shown)}, without lease renewals:\n{timeline}\n"
    )


def _same(one: BaseException | None, other: BaseException | None) -> bool:
    return one is not None and type(one) is type(other) and _message(one) == _message(other)


def _message(error: BaseException | None) -> str:
    """Return the beginning of a message, up to the colon: names of objects come after it."""
    return str(error).partition(":")[0]


Live = Callable[[int], Outcome]


class FailingLife(msgspec.Struct, frozen=True):
    """A life that failed."""

    seed: int
    digest: str


def _nothing() -> None:
    """Do nothing."""


def first_failure(
    live: Live, seeds: Sequence[int], meanwhile: Callable[[], None] = _nothing
) -> FailingLife | None:
    """Return the failure of the lowest seed, or None if all lives pass.

    New processes take the seeds from one queue and search; their number does not change the lives. ``meanwhile`` is
    called in this process during the search. If this process has several threads, it cannot be forked safely. It then
    searches alone and calls ``meanwhile`` afterwards.
    """
    count = min(_workers(), len(seeds))
    if count < 2 or not hasattr(os, "fork") or threading.active_count() > 1:
        failing = _search(live, seeds)
        meanwhile()
        return failing
    batch = min(_BATCH * count, _MOST)
    for at in range(0, len(seeds), batch):
        failing = _first_of(live, seeds[at : at + batch], count, _nothing if at else meanwhile)
        if failing is not None:
            return failing
    return None


def _first_of(
    live: Live, seeds: Sequence[int], count: int, meanwhile: Callable[[], None]
) -> FailingLife | None:
    """Start ``count`` processes that search, and return the failure of the lowest seed, or None."""
    queue, writer = os.pipe()
    with mmap.mmap(-1, _NUMBER.size) as shared, os.fdopen(queue, "rb", buffering=0) as waiting:
        with os.fdopen(writer, "wb") as pipe:
            pipe.writelines(map(_NUMBER.pack, seeds))
        lowest = _Lowest(shared)
        search = functools.partial(_search, live, _drawn(waiting.fileno()), lowest)
        pipes = [_fork(search) for _ in range(count)]
        meanwhile()
        results = [_result_of(child, pipe) for child, pipe in pipes]
    return min(
        (result for result in results if result is not None), key=lambda result: result.seed, default=None
    )


def _drawn(queue: int) -> Iterator[int]:
    """Yield the seeds that this process takes from the queue."""
    while number := os.read(queue, _NUMBER.size):
        yield _NUMBER.unpack(number)[0]


def _workers() -> int:
    given = os.environ.get(WORKERS)
    return int(given) if given else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class _Lowest:
    """The lowest seed that is known to fail, in memory that all processes share."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.seed = sys.maxsize

    @property
    def seed(self) -> int:
        seed: int = _NUMBER.unpack_from(self._memory)[0]
        return seed

    @seed.setter
    def seed(self, seed: int) -> None:
        _NUMBER.pack_into(self._memory, 0, seed)


def _search(live: Live, seeds: Iterable[int], lowest: _Lowest | None = None) -> FailingLife | None:
    for seed in seeds:
        if lowest is not None and seed > lowest.seed:
            return None
        outcome = live(seed)
        if outcome.failure is not None:
            if lowest is not None:
                lowest.seed = min(seed, lowest.seed)
            return FailingLife(seed, outcome.digest)
    return None


def _fork(search: Callable[[], FailingLife | None]) -> tuple[int, int]:
    """Return the id of a new process that searches, and the pipe from which its result can be read."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    code = 1
    try:
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(msgspec.json.encode(search()))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)  # no code of the parent runs here: no handlers at exit, no fixtures


def _result_of(child: int, reader: int) -> FailingLife | None:
    """Wait until a process has ended and return its result. Raises RuntimeError if the process failed."""
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(
            f"a process that searched for failures ended with {os.waitstatus_to_exitcode(status)}"
        )
    return msgspec.json.decode(result, type=FailingLife | None)


def simulate(
    *, seeds: int = 200, first: int = 0, tries: int = 200, **size: Unpack[Size]
) -> Callable[[Scenario], Callable[[], None]]:
    """Make a test from a scenario, which is a function that sets up a :class:`Simulation`: managers, users and checks.

    The test runs ``seeds`` lives on all cores of the machine; the first seed is ``first``, and ``size`` sets how much
    happens in each life. If lives fail, the one with the lowest seed is shrunk, with at most ``tries`` more runs. The
    AssertionError shows the steps and the timeline of the shrunk life. The first life and the failed life are run
    twice, and LeakError is raised if the two runs differ.
    """

    def decorate(scenario: Scenario) -> Callable[[], None]:
        def live(seed: int) -> Outcome:
            return run(scenario, seed, **size)

        def test() -> None:
            only = os.environ.get(SEED)
            count = int(os.environ.get(SEEDS, seeds))
            start = int(os.environ.get(FIRST_SEED, first))
            tried = [int(only)] if only else range(start, start + count)
            twice = list[Outcome]()
            failing = first_failure(live, tried[1:], lambda: twice.extend(live(tried[0]) for _ in range(2)))
            outcome, again = twice
            _check_repeats(outcome, again)
            if outcome.failure is None and failing is not None:
                outcome, again = live(failing.seed), live(failing.seed)
                _check_repeats(outcome, again)
                if failing.digest != outcome.digest:
                    raise LeakError(
                        f"seed {failing.seed} fails after other seeds only: something is kept between lives"
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
    if (change := difference(Recording.of(outcome), Recording.of(again))) is not None:
        failure = "" if outcome.failure is None else f"\nit had failed with: {outcome.failure}"
        raise LeakError(
            f"seed {outcome.seed} runs differently the second time: the program depends on something outside the "
            f"simulation, or keeps something between lives\n{change}{failure}"
        )
