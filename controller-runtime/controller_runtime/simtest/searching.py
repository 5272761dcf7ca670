# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Searches many seeds for the first life that fails, with one process per core."""

from __future__ import annotations

import functools
import mmap
import os
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from .life import Outcome

WORKERS: Final = "SIM_WORKERS"
"""The environment variable that sets the number of processes."""
_NUMBER: Final = struct.Struct("q")
_BATCH: Final = 50
"""Lives of a process, on average: tasks that a life leaves unfinished stay in memory until their process ends."""
_MOST: Final = 2000
"""Seeds that a pipe holds before a process reads them."""
Live = Callable[[int], Outcome]


class Found(msgspec.Struct, frozen=True):
    """A life that failed."""

    seed: int
    digest: str


def _nothing() -> None:
    """Do nothing."""


def first_failure(live: Live, seeds: Sequence[int], meanwhile: Callable[[], None] = _nothing) -> Found | None:
    """Return the failure of the lowest seed, or None if all lives pass.

    ``meanwhile`` is called in this process, while others search if there are others.
    The lives are the same in any number of processes, which draw the seeds from one queue. A process that has other
    threads searches alone: it cannot be forked safely.
    """
    count = min(_workers(), len(seeds))
    if count < 2 or not hasattr(os, "fork") or threading.active_count() > 1:
        found = _search(live, seeds)
        meanwhile()
        return found
    batch = min(_BATCH * count, _MOST)
    for at in range(0, len(seeds), batch):
        found = _first_of(live, seeds[at : at + batch], count, _nothing if at else meanwhile)
        if found is not None:
            return found
    return None


def _first_of(live: Live, seeds: Sequence[int], count: int, meanwhile: Callable[[], None]) -> Found | None:
    """Return the failure of the lowest seed, found by a number of new processes."""
    queue, writer = os.pipe()
    with mmap.mmap(-1, _NUMBER.size) as shared, os.fdopen(queue, "rb", buffering=0) as waiting:
        with os.fdopen(writer, "wb") as pipe:
            pipe.writelines(map(_NUMBER.pack, seeds))
        lowest = _Lowest(shared)
        search = functools.partial(_search, live, _drawn(waiting.fileno()), lowest)
        pipes = [_fork(search) for _ in range(count)]
        meanwhile()
        found = [_result_of(child, pipe) for child, pipe in pipes]
    return min((each for each in found if each is not None), key=lambda each: each.seed, default=None)


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


def _search(live: Live, seeds: Iterable[int], lowest: _Lowest | None = None) -> Found | None:
    for seed in seeds:
        if lowest is not None and seed > lowest.seed:
            return None
        outcome = live(seed)
        if outcome.failure is not None:
            if lowest is not None:
                lowest.seed = min(seed, lowest.seed)
            return Found(seed, outcome.digest)
    return None


def _fork(search: Callable[[], Found | None]) -> tuple[int, int]:
    """Return the id of a new process that searches, and the pipe that its result comes through."""
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
        os._exit(code)  # nothing of the parent's runs here: no handlers at exit, no fixtures


def _result_of(child: int, reader: int) -> Found | None:
    """Wait for the end of a process and return its result. Raises RuntimeError if there is none."""
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(
            f"a process that searched for failures ended with {os.waitstatus_to_exitcode(status)}"
        )
    return msgspec.json.decode(result, type=Found | None)
