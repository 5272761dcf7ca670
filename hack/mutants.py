#!/usr/bin/env python3
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Plant bugs, and count the simulated lives until one fails: ``python -m hack.mutants test/sim/mutants/library.toml``.

Tools for mutation make random edits and run tests; these bugs were chosen by people, and simulations search for them.

A life is one run of a scenario with one seed. A table names scenarios, as ``FILE::NAME``, and mutants: a module, a text
that occurs once in the module, and the replacement. A mutant may name other scenarios than its table. Each mutant is
searched for in a separate process, which imports a copy of the package with the bug.

A life that finds a mutant is run again without the bug, and must then pass.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSES = (ROOT, ROOT / "controller-runtime", ROOT / "trainerctl")
ROUND = 10
"""Number of lives of one scenario that run before lives of the next scenario."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    name: str
    module: str
    old: str
    new: str
    scenarios: Sequence[str] = ()

    def applied(self, source: str) -> str:
        """Return the module's ``source`` with the bug. Raises ValueError if the text does not occur exactly once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.module} contains {self.old!r} {count} times")
        return source.replace(self.old, self.new)

    def plant(self, folder: Path) -> None:
        """Copy the package of the module into ``folder``, with the bug, and link everything beside the package."""
        package, *_ = parts = self.module.split(".")
        for path in next(each for each in HOUSES if (each / package).is_dir()).iterdir():
            if path.name == package:
                shutil.copytree(path, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (folder / path.name).symlink_to(path)
        module = folder.joinpath(*parts)
        module = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        module.write_text(self.applied(module.read_text()))


def read(table: Path) -> list[Mutant]:
    """Return the mutants of a table."""
    found = tomllib.loads(table.read_text())
    return [Mutant(**{"scenarios": found["scenarios"], **each}) for each in found["mutant"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for the mutants of tables; return 1 if a mutant was not found."""
    parser = argparse.ArgumentParser(description="Count the simulated lives until a planted bug is found.")
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE")
    parser.add_argument("--lives", type=int, default=2000, help="lives until a mutant counts as not found")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="search for these mutants only")
    given = parser.parse_args(arguments)
    all_found = True
    for mutant in itertools.chain.from_iterable(map(read, given.tables)):
        if given.only and mutant.name not in given.only:
            continue
        found, failure = _in_child(mutant, mutant.scenarios, 0, given.lives)
        if found is not None and (other := _in_child(None, mutant.scenarios, found - 1, found)[1]):
            raise SystemExit(f"the life that finds {mutant.name!r} also fails without it: {other}")
        all_found = all_found and found is not None
        lives = str(found) if found is not None else f"not in {given.lives:,}"
        sys.stdout.write(f"{mutant.name}: {lives} {failure}".rstrip() + "\n")
        sys.stdout.flush()
    return int(not all_found)


def _in_child(
    mutant: Mutant | None, scenarios: Sequence[str], after: int, lives: int
) -> tuple[int | None, str]:
    """Search in a new interpreter, which has imported nothing yet and hashes strings as every other one."""
    os.environ["PYTHONHASHSEED"] = "0"
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        if mutant is not None:
            mutant.plant(Path(folder))
        module = mutant.module if mutant is not None else "pkg"
        return pool.submit(search, scenarios, folder, module, after, lives).result()


def search(
    scenarios: Sequence[str], folder: str, module: str, after: int, lives: int
) -> tuple[int | None, str]:
    """Return the number and the failure of the first life that fails, else None and an empty text.

    The first ``after`` lives are skipped, and the search ends with life number ``lives``. The ``module`` is imported
    from ``folder`` if it is there.
    """
    sys.path.insert(0, folder)
    from controller_runtime.simtest.__main__ import load

    tests = {name: load(str(ROOT / name)) for name in scenarios}
    importlib.import_module(module)
    for lived, (name, seed) in enumerate(itertools.islice(_turns(scenarios), after, lives), after + 1):
        if (failure := tests[name].run(seed).failure) is not None:
            kind = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
            return lived, kind + str(failure).partition("\n")[0].replace("|", "/")[:200]
    return None, ""


def _turns(scenarios: Sequence[str]) -> Iterator[tuple[str, int]]:
    for first in itertools.count(0, ROUND):
        for name in scenarios:
            for seed in range(first, first + ROUND):
                yield name, seed


if __name__ == "__main__":
    sys.exit(main())
