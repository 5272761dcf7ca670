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
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from .life import Outcome

WORKERS: Final = "SIM_WORKERS"
"""The environment variable that sets the number of processes."""
_LOWEST: Final = struct.Struct("q")
Live = Callable[[int], Outcome]


class Found(msgspec.Struct, frozen=True):
    """A life that failed."""

    seed: int
    digest: str


def first_failure(live: Live, seeds: Sequence[int]) -> Found | None:
    """Return the failure of the lowest seed, or None if all lives pass.

    The lives are the same in any number of processes. A process that has other threads searches alone: it cannot be
    forked safely.
    """
    count = min(_workers(), len(seeds))
    if count < 2 or not hasattr(os, "fork") or threading.active_count() > 1:
        return _search(live, seeds)
    with mmap.mmap(-1, _LOWEST.size) as shared:
        lowest = _Lowest(shared)
        pipes = [
            _fork(functools.partial(_search, live, seeds[number::count], lowest)) for number in range(count)
        ]
        found = [_result_of(child, pipe) for child, pipe in pipes]
    return min((each for each in found if each is not None), key=lambda each: each.seed, default=None)


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
        seed: int = _LOWEST.unpack_from(self._memory)[0]
        return seed

    @seed.setter
    def seed(self, seed: int) -> None:
        _LOWEST.pack_into(self._memory, 0, seed)


def _search(live: Live, seeds: Sequence[int], lowest: _Lowest | None = None) -> Found | None:
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
