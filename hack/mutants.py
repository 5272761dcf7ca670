#!/usr/bin/env python3
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Plant bugs, and count the simulated lives until one fails: ``python -m hack.mutants test/sim/mutants/library.toml``.

A table names scenarios, as ``FILE::NAME``, and mutants: a module, a text that occurs in it once, and its replacement.
A mutant may name scenarios of its own.
A mutant is edited into the module as it is imported, in a process of its own; no file changes.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parent.parent
LIVES = 2000
ROUND = 10
"""Lives of one scenario before the next has its turn."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    module: str
    old: str
    new: str
    scenarios: tuple[str, ...] = ()

    def applied(self, source: str) -> str:
        """Return the source of its module with the bug. Raises ValueError if the text does not occur exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.module} has {self.old!r} {source.count(self.old)} times")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Table:
    """The scenarios and mutants of a file."""

    scenarios: list[str]
    mutants: list[Mutant]

    @classmethod
    def read(cls, file: Path) -> Table:
        """Return the table in a file."""
        found = tomllib.loads(file.read_text())
        return cls(found["scenarios"], [Mutant(**each) for each in found["mutant"]])


class Finder(importlib.abc.MetaPathFinder):
    """Imports the module of a mutant with its bug."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec with a loader that edits; None for all other modules."""
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path, self._mutant)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the edited source; compiled files are neither read nor written."""
        code: CodeType = self.source_to_code(
            self._mutant.applied(self.get_source(fullname) or "").encode(), self.path
        )
        return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of mutants; return 1 if one was not found."""
    parser = argparse.ArgumentParser(description="Count the simulated lives until a planted bug is found.")
    parser.add_argument("table", type=Path)
    parser.add_argument(
        "--lives", type=int, default=LIVES, help=f"lives before a mutant counts as not found ({LIVES})"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these mutants alone")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    table = Table.read(given.table)
    if given.one is not None:
        mutant = next(each for each in table.mutants if each.name == given.one)
        sys.stdout.write(json.dumps(search(mutant.scenarios or table.scenarios, mutant, given.lives)))
        return 0
    missed = 0
    _show("| mutant | lives until found | failure |\n|---|---|---|")
    for mutant in table.mutants:
        if given.only and mutant.name not in given.only:
            continue
        lives, failure = _in_child(given.table, mutant, given.lives)
        missed += lives is None
        _show(f"| {mutant.name} | {lives or f'not in {given.lives}'} | {failure} |")
    return int(missed > 0)


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _in_child(table: Path, mutant: Mutant, lives: int) -> tuple[int | None, str]:
    command = [
        sys.executable,
        "-m",
        "hack.mutants",
        str(table.resolve()),
        "--one",
        mutant.name,
        "--lives",
        str(lives),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["?"]
        return None, f"the search itself failed: {lines[-1]}"
    found: tuple[int | None, str] = tuple(json.loads(done.stdout.splitlines()[-1]))
    return found


def search(scenarios: Sequence[str], mutant: Mutant, lives: int) -> tuple[int | None, str]:
    """Return after how many lives a mutant is found, and the failure."""
    sys.meta_path.insert(0, Finder(mutant))
    from controller_runtime.simtest.__main__ import load

    tests = {name: load(str(ROOT / name)) for name in scenarios}
    if mutant.module not in sys.modules:
        importlib.import_module(mutant.module)
    for lived, (name, seed) in enumerate(itertools.islice(_turns(scenarios), lives), 1):
        outcome = tests[name].run(seed)
        if outcome.failure is not None:
            text = str(outcome.failure).partition("\n")[0].replace("|", "/")
            return lived, f"{name.rpartition('::')[2]} {seed}: {type(outcome.failure).__name__}: {text[:120]}"
    return None, ""


def _turns(scenarios: Sequence[str]) -> Iterator[tuple[str, int]]:
    for first in itertools.count(0, ROUND):
        for name in scenarios:
            for seed in range(first, first + ROUND):
                yield name, seed


if __name__ == "__main__":
    sys.exit(main())
