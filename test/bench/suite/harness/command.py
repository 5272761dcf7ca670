# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the project beside alternatives, in the same run.

    main.py [WORKLOAD …] [--rounds N] [--json FILE]
    main.py --compare BEFORE AFTER
    main.py --list

Without a workload, all. Judge the ratios, and CPU rather than wall where others use the machine. The exit code is 1
when a target is missed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import anyio
from harness import figures

from pkg.ctrl import log

WORKLOADS: Final = ("ingest", "cached_get", "memory", "apply_rate", "start_up", "imports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or compare; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.compare:
        figures.show_comparison(*(figures.read(path) for path in options.compare))
        return 0
    if options.list:
        for name in WORKLOADS:
            sys.stdout.write(f"{name:12} {(_load(name).__doc__ or '').splitlines()[0]}\n")
        return 0
    log.configure(log.Options(verbosity=log.ERROR))
    found: list[figures.Figure] = []
    for name in options.workloads or WORKLOADS:
        sys.stderr.write(f"{name} …\n")
        workload = _load(name)
        gc.freeze()  # as the manager's program does
        found += anyio.run(
            workload.run,
            options.rounds,
            backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None},
        )
        if options.json is not None:
            figures.write(options.json, found)
    figures.show(found)
    return 1 if any(each.met is False for each in found) else 0


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"workloads.{name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of each workload (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="show two earlier runs")
    parser.add_argument("--list", action="store_true", help="say what each workload measures")
    return parser
