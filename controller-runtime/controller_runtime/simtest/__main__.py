# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime.simtest replay FILE::NAME SEED``: live one life again and print its timeline."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .shrinking import report, shrink
from .simulation import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a seed; return 1 when it fails."""
    parser = argparse.ArgumentParser(prog="python -m controller_runtime.simtest")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    replay = commands.add_parser("replay", help="live the life of a seed again and print what happened")
    replay.add_argument("scenario", metavar="FILE::NAME", help="the test, as pytest names it")
    replay.add_argument("seed", type=int)
    replay.add_argument("--minutes", type=float, default=10.0, help="virtual minutes (10)")
    replay.add_argument("--faults", type=float, default=12.0, help="how many faults, on average (12)")
    replay.add_argument(
        "--lines", type=int, default=200, help="how many lines of the timeline are printed (200)"
    )
    replay.add_argument(
        "--no-shrink", dest="shrink", action="store_false", help="keep all steps of a failure"
    )
    given = parser.parse_args(arguments)
    scenario = _load(given.scenario)
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


def _load(named: str) -> Any:
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
