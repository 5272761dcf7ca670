# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the project beside alternatives, in the same run.

    main.py [WORKLOAD …] [--rounds N] [--quick | --full] [--manager NAME=CMD …] [--go RELEASES]
            [--table] [--json FILE] [--charts DIR]
    main.py --base COMMIT [WORKLOAD …] [--rounds N]
    main.py --list

Without a workload, all workloads except ``scale`` run. They run managers against an API server: ours and each
``--manager`` take turns. CMD gets the path of its Configuration at ``{config}``, and the
addresses in the Configuration at ``{metrics}`` and ``{health}``. It finds the API server by KUBECONFIG, and certificates
in ``$TMPDIR/k8s-webhook-server/serving-certs``. ``--go`` builds Trainer's own managers. ``--base`` measures the manager
and the pod grouper of a commit beside ours, and sets targets for CPU, requests and memory. Compare ratios rather than
values, and CPU time rather than wall time if the machine is shared. The exit code is 1 if a target is missed, and 2 if
a workload failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import anyio
from controller_runtime import log
from harness import base, charts, figures, interpreter, summary
from harness.cluster import cluster
from harness.plan import FULL, MODERATE, QUICK, Entrant, Plan, entrants, quick

from testkit import programs

WORKLOADS: Final = (
    "burst",
    "paced",
    "status",
    "cold_start",
    "admission",
    "pod_grouping",
)
LONG: Final = ("scale",)
"""Workloads that run only if they are named. They start API servers themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = base.ROUNDS if options.base else 3
    if options.list:
        for name in (*WORKLOADS, *LONG):
            sys.stdout.write(f"{name:12} {(_load(name).__doc__ or '').splitlines()[0]}\n")
        return 0
    try:
        plan = _plan(options)
    except ValueError as error:
        parser.error(str(error))
    log.configure(log.Options(verbosity=log.ERROR))
    workloads = options.workloads or (base.WORKLOADS if options.base else WORKLOADS)
    found, failed = measure(workloads, plan, options.json)
    if options.base:
        found = base.judged(found)
    if options.table:
        sys.stdout.write("\n".join([*summary.table(found), "", ""]))
    else:
        figures.show(found)
    sys.stdout.write(f"{interpreter.describe()}\n")
    if options.charts is not None:
        for path in charts.draw(options.charts, found):
            sys.stderr.write(f"{path}\n")
    return 2 if failed else 1 if any(each.met is False for each in found) else 0


def measure(
    workloads: Sequence[str], plan: Plan, kept: Path | None = None
) -> tuple[list[figures.Figure], list[str]]:
    """Run workloads one after another; return the figures, and the names of those that failed.

    After each workload, all figures so far are written into the file ``kept``, as JSON.
    """
    found: list[figures.Figure] = []
    failed = []
    interpreter.compile_as_image()
    for name in workloads:
        sys.stderr.write(f"{name} …\n")
        workload = _load(name)
        gc.freeze()  # as the manager's program does
        try:
            found += anyio.run(
                *((workload.run, plan) if name in LONG else (_on_a_cluster, workload, plan)),
                backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None},
            )
        except Exception:  # a failure must not lose the figures of other workloads, which take hours
            traceback.print_exc()
            failed.append(name)
        if kept is not None:
            figures.write(kept, found)
    return found, failed


async def _on_a_cluster(workload: ModuleType, plan: Plan) -> list[figures.Figure]:
    async with cluster() as where:
        found: list[figures.Figure] = await workload.run(plan, where)
    return found


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"managers.{name}")


def _plan(options: argparse.Namespace) -> Plan:
    """Return the plan that the options describe.

    Raises:
        ValueError: a program, a commit or the number of rounds is not valid.
    """
    if options.rounds < 1:
        raise ValueError("--rounds must be at least 1")
    sizes = QUICK if options.quick else FULL if options.full else base.SIZES if options.base else MODERATE
    chosen = {
        name: value
        for name in (each.name for each in dataclasses.fields(sizes))
        if (value := getattr(options, name)) is not None
    }
    sizes = dataclasses.replace(sizes, **chosen)
    plan = dataclasses.replace(quick() if options.quick else Plan(3), rounds=options.rounds, sizes=sizes)
    before = [(each,) for each in base.entrants(options.base)] if options.base else [(), ()]
    go = [
        Entrant(f"go-{release}", f"{anyio.run(programs.locate_go_manager, release).path} --config {{config}}")
        for release in options.go
    ]
    return dataclasses.replace(
        plan,
        managers=entrants(plan.managers, options.manager, others=(*before[0], *go)),
        groupers=entrants(plan.groupers, options.grouper, others=before[1]),
    )


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _releases(text: str) -> tuple[str, ...]:
    releases = tuple(text.split(","))
    if unknown := set(releases) - {*programs.GO_RELEASES}:
        known = ", ".join(programs.GO_RELEASES)
        raise argparse.ArgumentTypeError(f"unknown release {', '.join(sorted(unknown))}; known are {known}")
    return releases


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    add = parser.add_argument
    add("workloads", nargs="*", choices=[*WORKLOADS, *LONG, []], metavar="WORKLOAD")
    add("--rounds", type=int, metavar="N", help=f"rounds of each workload (3; {base.ROUNDS} with --base)")
    add(
        "--base",
        metavar="COMMIT",
        help="also measure a commit; costs more than 5 %% above those of the commit miss their target",
    )
    add("--json", type=Path, metavar="FILE", help="also write the figures to FILE, as JSON")
    add("--charts", type=Path, metavar="DIR", help="draw the figures into DIR")
    add("--table", action="store_true", help="print the main figures as a Markdown table")
    add("--list", action="store_true", help="list the workloads, and what each measures")
    managers = parser.add_argument_group("workloads on managers")
    add = managers.add_argument
    add("--manager", action="append", default=[], metavar="NAME=CMD", help="also measure this manager")
    add(
        "--go",
        type=_releases,
        default=(),
        metavar="RELEASE,…",
        help=f"also measure Trainer's Go managers of these releases ({', '.join(programs.GO_RELEASES)})",
    )
    add("--grouper", action="append", default=[], metavar="NAME=CMD", help="also measure this pod grouper")
    add("--quick", action="store_true", help="a few objects of each kind, to check that everything works")
    add("--full", action="store_true", help="bursts of 3,000 TrainJobs, starts with 10,000, and 10,000 pods")
    add("--jobs", type=_counts, metavar="N,…", help="TrainJobs of burst and status (200,1000)")
    add("--few", type=int, metavar="N", help="TrainJobs of other runtimes, and paced (200)")
    add("--existing", type=_counts, metavar="N,…", help="TrainJobs before a cold start (0,2000)")
    add("--pods", type=int, metavar="N", help="pods to group (1000)")
    add("--scale", type=int, metavar="N", help="TrainJobs of the workload scale (50000)")
    add("--reviews", type=int, metavar="N", help="half the reviews of the workload admission (1000)")
    return parser
