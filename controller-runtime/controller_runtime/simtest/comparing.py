# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares two lives of one seed: they are the same, or the program depends on something outside the simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from .life import Outcome

_BEFORE: Final = 5
"""Lines that are shown before the first difference."""


class Life(msgspec.Struct, frozen=True):
    """The parts of a life that are the same whenever its seed is lived."""

    seed: int
    digest: str
    lines: list[str]
    """The timeline; each line has the state of the loop: two are equal if everything before was."""
    calls: list[str]
    """The callbacks by name, of a traced life."""

    @classmethod
    def of(cls, outcome: Outcome) -> Life:
        """Return the life of an outcome."""
        lines = [f"{line}  [{line.state:016x}]" for line in outcome.timeline]
        return cls(outcome.seed, outcome.digest, lines, list(outcome.trace))


def difference(one: Life, other: Life) -> str | None:
    """Return where two lives of a seed part, or None if they are the same."""
    if one.digest == other.digest:
        return None
    parts = [_first(one.lines, other.lines, "line")]
    if one.calls and other.calls:
        parts.append(_first(one.calls, other.calls, "callback"))
    return "\n".join(filter(None, parts)) or "the lives part after their last lines"


def in_another_process(
    scenario: str, seeds: Sequence[int], arguments: Sequence[str], hash_seed: int
) -> Iterator[Life]:
    """Yield the lives of seeds as a new interpreter with another order of hashes lives them.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", __package__ or "", "record", scenario, *map(str, seeds), *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 -- this program
    for line in done.stdout.splitlines():
        yield msgspec.json.decode(line, type=Life)


def _first(one: Sequence[str], other: Sequence[str], unit: str) -> str:
    """Return the first difference of two sequences, and the items before it."""
    for number, (here, there) in enumerate(zip_longest(one, other)):
        if here != there:
            before = "".join(f"    {text}\n" for text in one[max(0, number - _BEFORE) : number])
            return f"{unit} {number} differs:\n{before}  - {here}\n  + {there}"
    return ""
