# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Draw a sample of cosmic-ray's edits, and run the tests of an edit: ``make mutation-score``.

cosmic-ray makes the edits and keeps the results, but it draws no sample of the 60,000 edits, and runs the same tests
for each. Here, tests that are named like the edited module come first, then the other tests in the folder that mirrors
its package, also those that start processes but no API server, then the parity tests of the manager or the other unit
tests of the library or the tool, until one fails or their CPU time is used up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

SECONDS = 60
ADDRESS_SPACE = 8 << 30
"""Memory limit of the tests, because an edit may make a loop allocate without end."""
WITHOUT_SERVER = "not (integration or e2e or fault)"
NEVER_RUN = "core/ReplaceBinaryOperator_BitOr_"  # mostly edits of annotations, which are not evaluated


def draw(session: Path, seed: int, count: int) -> None:
    """Keep ``count`` edits of a session, at most one of each line, which the seed determines, and delete all others."""
    chance = random.Random(seed)  # noqa: S311 no secret
    with closing(sqlite3.connect(session)) as connection, connection as database:
        found = database.execute(
            "SELECT job_id, operator_name, module_path, start_pos_row FROM mutation_specs "
            "ORDER BY module_path, start_pos_row, start_pos_col, operator_name, operator_args, occurrence"
        )
        edits = defaultdict[tuple[str, int], list[str]](list)
        for job, operator, module, row in found:
            if not operator.startswith(NEVER_RUN):
                edits[module, row].append(job)
        lines = list(edits)
        chance.shuffle(lines)
        kept = json.dumps([chance.choice(edits[line]) for line in lines[:count]])
        database.execute(
            "DELETE FROM work_items WHERE job_id NOT IN (SELECT value FROM json_each(?))", [kept]
        )
        database.execute("DELETE FROM mutation_specs WHERE job_id NOT IN (SELECT job_id FROM work_items)")


def selected(file: str, root: Path) -> tuple[Path, list[str]]:
    """Return the folder in which pytest runs for a file, and its arguments: the package's tests, then others."""
    *packages, module = Path(file).with_suffix("").parts
    apart = packages[0] != "pkg"  # the root package is in the folder of a separate project
    house = root / packages[0] if apart else root
    packages = packages[1 + apart :]
    folder, rest = _mirror(house / "test/unit", packages)
    names = [*rest, *([] if module == "__init__" else [module])]
    like = [f"test_*{name.strip('_')}*.py" for name in reversed(names)]
    # The files are given one by one, because pytest would run the files of a folder in another order.
    files = sorted(folder.rglob("test_*.py"), key=lambda path: (not any(map(path.match, like)), path))
    with_processes, rest = _mirror(house / "test/integration", packages)
    if apart and not rest:  # those of the manager need an API server
        files += sorted(with_processes.glob("test_*.py"))
    others = (
        sorted({*(house / "test/unit").rglob("test_*.py")} - {*files}) if apart else [house / "test/parity"]
    )
    return house, [str(path.relative_to(house)) for path in (*files, *others)]


def _mirror(folder: Path, packages: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """Return the folder of the innermost package that has one, and the names of the packages inside it."""
    while packages and (folder / packages[0]).is_dir():
        folder, packages = folder / packages[0], packages[1:]
    return folder, packages


def judge(root: Path, file: str) -> int:
    """Run the tests of an edited file; return 0 if none failed before the CPU time was used up."""
    house, paths = selected(file, root)
    limits = ["prlimit", f"--cpu={SECONDS}:{SECONDS + 10}", f"--as={ADDRESS_SPACE}", "--core=0"]
    # A test in an endless loop fails before the CPU time of all tests is used up.
    options = ["-x", "-q", "-m", WITHOUT_SERVER, f"--timeout={SECONDS / 2}"]
    pytest = [sys.executable, "-m", "pytest", *options, *paths]
    houses = (root, root / "controller-runtime", root / "trainerctl")
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, houses))}
    done = subprocess.run([*limits, *pytest], cwd=house, env=environment, check=False)  # noqa: S603
    return 0 if done.returncode == -signal.SIGXCPU else done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw edits, or run the tests of the file that differs from the commit."""
    parser = argparse.ArgumentParser(prog="python -m hack.mutation_score")
    parser.add_argument("--draw", type=Path, metavar="SESSION", help="draw; without it, run tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    given = parser.parse_args(arguments)
    if given.draw is not None:
        draw(given.draw, given.seed, given.count)
        return 0
    difference = ["git", "diff", "--name-only"]
    (file,) = subprocess.run(difference, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()  # noqa: S603
    return judge(Path.cwd(), file)


if __name__ == "__main__":
    sys.exit(main())
