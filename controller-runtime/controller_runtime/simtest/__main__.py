# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime.simtest``: replay the life of a seed, check that lives repeat, or print lives."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from .lives import Outcome, Recording, difference, in_another_process, report, run, shrink
from .simulation import Simulation, Size

_HASH_SEEDS: Final = (1, 2)
_SIZES: Final = {
    "minutes": "virtual minutes",
    "faults": "how many faults, on average",
    "actions": "the share of the users' actions that are taken, from 0 to 1",
}


class Loaded(NamedTuple):
    """The scenario of a test, and the size of its lives."""

    scenario: Callable[[Simulation], None]
    size: Size

    def run(self, seed: int, *, trace: bool = False) -> Outcome:
        """Run the life of a seed."""
        return run(self.scenario, seed, trace=trace, **self.size)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 if a life fails, or differs when it is run again."""
    given = _parser().parse_args(arguments)
    code: int = given.command(given)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controller_runtime.simtest")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    replay = commands.add_parser("replay", help="run the life of a seed again and print its timeline")
    check = commands.add_parser("check", help="run lives several times and print the first difference")
    record = commands.add_parser("record", help="print the lives of seeds as JSON, one a line")
    for command in (replay, check, record):
        command.add_argument("scenario", metavar="FILE::NAME", help="the test, as pytest names it")
        for name, meaning in _SIZES.items():
            command.add_argument(f"--{name}", type=float, help=f"{meaning}, instead of the test's own number")
    replay.add_argument("seed", type=int, help="the number of the life")
    lines = "how many lines of the timeline are printed (200)"
    replay.add_argument("--lines", type=int, default=200, help=lines)
    no_shrink = "keep all steps of a failure"
    replay.add_argument("--no-shrink", dest="shrink", action="store_false", help=no_shrink)
    replay.set_defaults(command=_replay)
    check.add_argument("--seeds", type=int, default=10, help="how many seeds are compared (10)")
    check.add_argument("--first", type=int, default=0, help="the first seed (0)")
    check.set_defaults(command=_check)
    record.add_argument("seeds", type=int, nargs="+", help="the numbers of the lives")
    record.set_defaults(command=_record)
    return parser


def _replay(given: argparse.Namespace) -> int:
    test = _sized(given)
    outcome = test.run(given.seed)
    if outcome.failure is None:
        for line in outcome.timeline[-given.lines :]:
            sys.stdout.write(f"{line}\n")
        sys.stdout.write(f"seed {given.seed} passes; digest {outcome.digest}\n")
        return 0
    if given.shrink:
        outcome = shrink(test.scenario, outcome, **test.size)
    sys.stdout.write(report(outcome, lines=given.lines))
    return 1


def _check(given: argparse.Namespace) -> int:
    """Run the life of each seed four times and compare.

    In this process, all seeds are run once, and then all are run again. The other two runs are in new processes, with
    different orders of hashes.
    """
    seeds = range(given.first, given.first + given.seeds)
    first = _lives(given, seeds)
    others = {"again in this process": _lives(given, seeds)}
    options = [f"--{name}={value}" for name, value in _sized(given).size.items()]
    for hash_seed in _HASH_SEEDS:
        lives = in_another_process(given.scenario, seeds, options, hash_seed)
        others[f"in a new process with PYTHONHASHSEED={hash_seed}"] = list(lives)
    failed = False
    for how, lives_ in others.items():
        for one, other in zip(first, lives_, strict=True):
            if (found := difference(one, other)) is not None:
                failed = True
                sys.stdout.write(f"seed {one.seed} differs {how}:\n{found}\n")
    if not failed:
        sys.stdout.write(f"{len(seeds)} seeds repeat\n")
    return int(failed)


def _record(given: argparse.Namespace) -> int:
    for life in _lives(given, given.seeds):
        sys.stdout.write(msgspec.json.encode(life).decode() + "\n")
    return 0


def _lives(given: argparse.Namespace, seeds: Sequence[int]) -> list[Recording]:
    test = _sized(given)
    return [Recording.of(test.run(seed, trace=True)) for seed in seeds]


def _sized(given: argparse.Namespace) -> Loaded:
    """Load the test, and replace its sizes by those on the command line."""
    test = load(given.scenario)
    own: dict[str, float] = {name: value for name in _SIZES if (value := getattr(given, name)) is not None}
    return test._replace(size={**test.size, **own})  # type: ignore[typeddict-item]


def load(named: str) -> Loaded:
    """Return the scenario and the size of a test. Raises SystemExit if the test does not exist."""
    file, _, name = named.partition("::")
    path = Path(file).resolve()
    if not name or not path.is_file():
        raise SystemExit(f"{named} does not name a test: write FILE::NAME")
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    if module.__file__ != str(path):
        raise SystemExit(f"{file} has the name of the module {module.__file__}")
    test: Any = getattr(module, name, None)
    if not hasattr(test, "scenario"):
        raise SystemExit(f"{file} has no simulation {name}")
    return Loaded(test.scenario, test.size)


if __name__ == "__main__":
    sys.exit(main())
