#!/usr/bin/env python3
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measure how many random edits of the code the unit tests notice: ``python -m hack.mutation_score --seed 1``.

``hack.mutants`` searches with simulations for bugs that people wrote down. Here, a line of ``pkg``,
``controller_runtime`` or ``trainerctl`` is drawn at random, and one of the edits that Poodle's operators offer for it.
The edit is made in a copy of a commit, and tests run there until one fails or their CPU time is used up: first the
tests that are named like the module, then the other tests in the folder that mirrors the package of the module, then
the parity tests.

Results are appended to a file, and a later run continues there.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from poodle.data_types import FileMutation  # type: ignore[import-untyped]  # it has no types
from poodle.mutate import builtin_mutators, create_mutants_for_file  # type: ignore[import-untyped]  # it has no types
from poodle.mutators import ComparisonMutator  # type: ignore[import-untyped]  # it has no types

from hack.commits import ROOT, resolve, unpack

HOUSES = ("pkg", "controller-runtime/controller_runtime", "trainerctl/trainerctl")
SECONDS = 60
WALL_SECONDS = 3600
"""Time limit of the tests of an edit on a busy machine; usually the tests use up their CPU time first."""
ADDRESS_SPACE = 8 << 30
"""Memory limit of the tests, because an edit may make a loop allocate without end."""
KILLED, SURVIVED, TIMED_OUT, UNJUDGED = "killed", "survived", "timed out", "not judged"
"""An edit is not judged if a test module cannot be imported, or if the test that fails also fails without the edit."""
SPENT = "spent"
"""No test had failed when the CPU time was used up: there are many tests, or the edit made a loop endless."""


@dataclass(frozen=True)
class Edit:
    """One random edit of a file, and the outcome of its tests."""

    file: str
    line: int
    operator: str
    diff: str
    outcome: str = ""
    by: str = ""
    """The test that failed."""

    @property
    def package(self) -> str:
        """The root package of the file and the package below it; modules directly in a root package count together."""
        house, *rest = self.file.split("/")[_is_apart(self.file) :]
        return f"{house}.{rest[0]}" if len(rest) > 1 else house


def draw(root: Path, seed: int, only: Sequence[str]) -> Iterator[tuple[Edit, str]]:
    """Yield an edit, and the edited text of its file, for each line for which there is one.

    The seed determines the order of the lines, and which edit is chosen.
    """
    chance = random.Random(seed)  # noqa: S311 no secret
    files = sorted(
        each for path in only for each in [*(root / path).rglob("*.py"), root / path] if each.is_file()
    )
    lines = [(file, number) for file in files for number, _ in enumerate(file.read_bytes().splitlines(), 1)]
    chance.shuffle(lines)
    offers: dict[Path, dict[int, list[FileMutation]]] = {}
    for file, number in lines:
        if file not in offers:
            offers[file] = _offers(file)
        offered = offers[file].get(number, [])
        chance.shuffle(offered)
        made = (_edit(file, root, each) for each in offered)
        yield from itertools.islice(filter(None, made), 1)


class _Compare(ComparisonMutator):  # type: ignore[misc]  # Poodle has no types
    @staticmethod
    def add_parent_attr(_: ast.Module) -> None:
        """Set no parents, because Poodle copies a comparison with everything that the comparison refers to.

        With parents, that would be the whole module.
        """


def _offers(file: Path) -> dict[int, list[FileMutation]]:
    settings = SimpleNamespace(mutator_opts={})
    operators = (builtin_mutators | {_Compare.mutator_name: _Compare}).values()
    work = SimpleNamespace(mutators=[each(settings, None) for each in operators])
    found = defaultdict[int, list[FileMutation]](list)
    for each in create_mutants_for_file(work, file.parent, file):
        found[each.lineno].append(each)
    return found


def _edit(file: Path, root: Path, offered: FileMutation) -> tuple[Edit, str] | None:
    """Return the edit and the edited text.

    Return None if the edited text does not compile without a warning, or has the same meaning as the source.
    """
    source, name = file.read_bytes(), str(file.relative_to(root))
    lines = source.splitlines(keepends=True)
    # Columns count the bytes of the encoded text.
    head = b"".join(lines[: offered.lineno - 1]) + lines[offered.lineno - 1][: offered.col_offset]
    tail = lines[offered.end_lineno - 1][offered.end_col_offset :] + b"".join(lines[offered.end_lineno :])
    text = (head + offered.text.encode() + tail).decode()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compile(text, name, "exec")
        except SyntaxError:
            return None
    if ast.dump(ast.parse(text)) == ast.dump(ast.parse(source)):
        return None
    diff = difflib.unified_diff(source.decode().splitlines(), text.splitlines(), n=0, lineterm="")
    shown = [line for line in diff if not line.startswith(("---", "+++", "@@"))]
    return Edit(name, offered.lineno, offered.mutator_name, "\n".join(shown)), text


def _is_apart(file: str) -> bool:
    """Return True for a file whose root package is in a separate project folder, unlike ``pkg``."""
    return not file.startswith("pkg/")


def selected(file: str, root: Path) -> tuple[Path, list[str]]:
    """Return the folder in which pytest runs for a file, and its arguments: the package's unit tests, then parity."""
    *packages, module = Path(file).with_suffix("").parts
    house = root / packages[0] if _is_apart(file) else root
    packages = packages[1 + _is_apart(file) :]
    folder = house / "test/unit"
    while packages and (folder / packages[0]).is_dir():
        folder /= packages.pop(0)
    names = [*packages, *([] if module == "__init__" else [module])]
    like = [f"test_*{name.strip('_')}*.py" for name in reversed(names)]
    # The files are given one by one, because pytest would run the files of a folder in another order.
    files = sorted(folder.rglob("test_*.py"), key=lambda path: (not any(map(path.match, like)), path))
    parity = [house / "test/parity"] if house == root else []
    return house, [str(path.relative_to(house)) for path in (*files, *parity)]


def test(root: Path, house: Path, paths: Sequence[str], seconds: int) -> tuple[str, str]:
    """Run tests in a copy until one fails or the CPU time is used up; return the outcome, and which test failed."""
    limits = ["prlimit", f"--cpu={seconds}:{seconds + 10}", f"--as={ADDRESS_SPACE}", "--core=0"]
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *paths]
    packages = (root, root / "controller-runtime", root / "trainerctl")
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, packages))}
    try:
        done = subprocess.run(  # noqa: S603
            [*limits, *pytest],
            cwd=house,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    by = failed.group(1) if failed else ""
    if "::" in by:  # otherwise a file could not be imported
        return TIMED_OUT if "from pytest-timeout" in done.stdout else KILLED, by
    return {0: SURVIVED, -signal.SIGXCPU: SPENT}.get(done.returncode, UNJUDGED), by


def run(root: Path, edits: Iterable[tuple[Edit, str]], seconds: int = SECONDS) -> Iterator[Edit]:
    """Make each edit in the copy at ``root``, run its tests, undo the edit, and yield it with the outcome."""
    healthy = functools.cache(lambda house, *paths: test(root, house, paths, seconds)[0])
    for number, (edit, text) in enumerate(edits):
        path, (house, paths) = root / edit.file, selected(edit.file, root)
        source, stat = path.read_bytes(), path.stat()
        path.write_text(text)
        os.utime(path, (number, number))  # no compiled file records this time
        outcome, by = test(root, house, paths, seconds)
        path.write_bytes(source)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if outcome == SPENT:
            outcome = SURVIVED if healthy(house, *paths) == SPENT else TIMED_OUT
        elif outcome == KILLED and healthy(house, by.partition("::")[0]) not in (SURVIVED, SPENT):
            outcome = UNJUDGED
        yield replace(edit, outcome=outcome, by=by)


def report(results: Sequence[Edit], title: str) -> str:
    """Return the table of the packages, and the edits that no test noticed, in Markdown."""
    by_package: dict[str, Counter[str]] = defaultdict(Counter)
    for each in results:
        by_package[each.package][each.outcome] += 1
    total = sum(by_package.values(), Counter[str]())
    head = ["package", "drawn", KILLED, TIMED_OUT, UNJUDGED, SURVIVED, "noticed (95 % interval)"]
    rows = [
        head,
        ["---"] * len(head),
        *(_row(name, by_package[name]) for name in sorted(by_package)),
        _row("all", total),
    ]
    lines = [f"{title}.", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    for each in results:
        if each.outcome == SURVIVED:
            lines += [f"{each.file}:{each.line} ({each.operator})", each.diff, ""]
    return "\n".join(lines)


def _row(name: str, outcomes: Counter[str]) -> list[str]:
    noticed = outcomes[KILLED] + outcomes[TIMED_OUT]
    low, high = interval(noticed, noticed + outcomes[SURVIVED])
    counts = [outcomes.total(), *(outcomes[each] for each in (KILLED, TIMED_OUT, UNJUDGED, SURVIVED))]
    share = noticed / max(1, noticed + outcomes[SURVIVED])
    return [name, *map(str, counts), f"{share:.0%} ({low:.0%} to {high:.0%})"]


def interval(hits: int, tries: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a rate by Wilson's formula."""
    if not tries:
        return 0.0, 1.0
    z, rate = 1.96, hits / tries
    middle = rate + z * z / (2 * tries)
    half = z * math.sqrt(rate * (1 - rate) / tries + z * z / (4 * tries * tries))
    return (middle - half) / (1 + z * z / tries), (middle + half) / (1 + z * z / tries)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, test and report."""
    parser = argparse.ArgumentParser(
        description="Measure how many random edits of the code the unit tests notice."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--count",
        type=int,
        default=300,
        help="the total number of edits, including those of earlier runs (300)",
    )
    parser.add_argument(
        "--only", nargs="*", default=HOUSES, metavar="PATH", help="files or folders to draw from"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "build/mutation-score.jsonl", metavar="FILE")
    options = parser.parse_args(arguments)
    if not options.results.exists():
        options.results.parent.mkdir(parents=True, exist_ok=True)
        head = {"seed": options.seed, "only": options.only, "commit": resolve("HEAD")}
        options.results.write_text(json.dumps(head) + "\n")
    head, *lines = map(json.loads, options.results.read_text().splitlines())
    if (head["seed"], head["only"]) != (options.seed, list(options.only)):
        parser.error(f"{options.results} has the results of another draw: {head}")
    results = [Edit(**each) for each in lines]
    if len(results) < options.count:
        with tempfile.TemporaryDirectory(prefix="mutation-score-") as folder:
            root = Path(folder)
            unpack(head["commit"], root)
            edits = itertools.islice(draw(root, options.seed, options.only), len(results), options.count)
            for result in run(root, edits):
                results.append(result)
                with options.results.open("a") as stream:
                    stream.write(json.dumps(asdict(result)) + "\n")
    title = (
        f"Seed {options.seed}, commit {head['commit'][:12]}, at most {SECONDS} CPU s of tests for each edit"
    )
    sys.stdout.write(report(results, title) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
