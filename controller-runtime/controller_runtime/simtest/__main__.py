# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime.simtest``: replay a seed, or check that lives repeat."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from .comparing import Life, difference, in_another_process
from .shrinking import report, shrink
from .simulation import run

_HASH_SEEDS: Final = (1, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 when a life fails or does not repeat."""
    given = _parser().parse_args(arguments)
    code: int = given.command(given)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controller_runtime.simtest")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    replay = commands.add_parser("replay", help="live the life of a seed again and print its timeline")
    check = commands.add_parser("check", help="live seeds several times and print the first difference")
    record = commands.add_parser("record", help="print the lives of seeds as JSON, one a line")
    for command in (replay, check, record):
        command.add_argument("scenario", metavar="FILE::NAME", help="the test, as pytest names it")
        command.add_argument("--minutes", type=float, default=10.0, help="virtual minutes (10)")
        command.add_argument("--faults", type=float, default=12.0, help="how many faults, on average (12)")
    replay.add_argument("seed", type=int)
    lines = "how many lines of the timeline are printed (200)"
    replay.add_argument("--lines", type=int, default=200, help=lines)
    no_shrink = "keep all steps of a failure"
    replay.add_argument("--no-shrink", dest="shrink", action="store_false", help=no_shrink)
    replay.set_defaults(command=_replay)
    check.add_argument("--seeds", type=int, default=10, help="how many seeds are compared (10)")
    check.add_argument("--first", type=int, default=0, help="the first seed (0)")
    check.set_defaults(command=_check)
    record.add_argument("seeds", type=int, nargs="+")
    record.set_defaults(command=_record)
    return parser


def _replay(given: argparse.Namespace) -> int:
    scenario = load(given.scenario)
    outcome = run(scenario, given.seed, minutes=given.minutes, faults=given.faults)
    if outcome.failure is None:
        for line in outcome.timeline[-given.lines :]:
            sys.stdout.write(f"{line}\n")
        sys.stdout.write(f"seed {given.seed} passes; digest {outcome.digest}\n")
        return 0
    if given.shrink:
        outcome = shrink(scenario, outcome, minutes=given.minutes)
    sys.stdout.write(report(outcome, lines=given.lines))
    return 1


def _check(given: argparse.Namespace) -> int:
    """Live each seed twice here, the second time after all the others, and once in each of two new processes."""
    seeds = range(given.first, given.first + given.seeds)
    first = _lives(given, seeds)
    others = {"again in this process": _lives(given, seeds)}
    options = [f"--minutes={given.minutes}", f"--faults={given.faults}"]
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


def _lives(given: argparse.Namespace, seeds: Sequence[int]) -> list[Life]:
    scenario, minutes, faults = load(given.scenario), given.minutes, given.faults
    return [Life.of(run(scenario, seed, minutes=minutes, faults=faults, trace=True)) for seed in seeds]


def load(named: str) -> Any:
    """Return the scenario that a test has. Raises SystemExit when there is none."""
    file, _, name = named.partition("::")
    spec = importlib.util.spec_from_file_location("scenario", file)
    if not name or spec is None or spec.loader is None or not Path(file).is_file():
        raise SystemExit(f"{named} does not name a test: write FILE::NAME")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(file).parent))
    spec.loader.exec_module(module)
    scenario = getattr(getattr(module, name, None), "scenario", None)
    if scenario is None:
        raise SystemExit(f"{file} has no simulation {name}")
    return scenario


if __name__ == "__main__":
    sys.exit(main())
