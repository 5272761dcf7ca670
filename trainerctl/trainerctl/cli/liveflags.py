# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of the commands that read or change TrainJobs of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from trainerctl.cli import flagtypes

Add = Callable[[argparse.ArgumentParser], None]


def _why(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("text", "json"))
    parser.epilog = (
        "The exit code is 0 if the TrainJob runs, starts or is complete, 1 if something is wrong, and 3 if it waits: "
        "for a person, a queue, or free capacity."
    )
    parser.set_defaults(function="trainerctl.cli.why:why_command")


def _get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        type=flagtypes.name,
        help="TrainJob to show with its JobSet, Jobs and pods",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="list the TrainJobs of all namespaces"
    )
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show changes, of one TrainJob until it has ended"
    )
    _cluster(parser, ("table", "json", "yaml", "name"))
    parser.set_defaults(function="trainerctl.cli.get:get_command")


def _history(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-A", "--all-namespaces", action="store_true", help="include the TrainJobs of all namespaces")
    add("--limit", type=flagtypes.integer(1, 1 << 20), metavar="N", help="number of TrainJobs (default all)")
    _cluster(parser, ("table", "json"))
    parser.set_defaults(function="trainerctl.cli.history:history_command")


def _describe(parser: argparse.ArgumentParser) -> None:
    _named(parser)
    parser.set_defaults(function="trainerctl.cli.describe:describe_command")


def _wait(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _named(parser)
    states = ("complete", "failed", "finished", "running", "suspended", "deleted")
    add(
        "--for",
        dest="state",
        choices=states,
        default="complete",
        metavar="STATE",
        help=f"state to wait for: {', '.join(states)} (default complete)",
    )
    add(
        "--timeout", type=flagtypes.seconds, default=3600, metavar="SECONDS", help="time limit (default 3600)"
    )
    parser.epilog = (
        "The exit code is 0 once the state is reached, 1 if it is out of reach, and 3 after the time limit."
    )
    parser.set_defaults(function="trainerctl.cli.wait:wait_command")


def _events(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("table", "json"))
    parser.add_argument(
        "--types",
        nargs="+",
        action="extend",
        choices=("Normal", "Warning"),
        help="types of events to show (default all)",
    )
    parser.set_defaults(function="trainerctl.cli.events:events_command")


def _logs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _named(parser)
    add("--step", default="node", help="replicated job whose log to print (default node)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rank",
        type=flagtypes.integer(0, 1 << 20),
        default=0,
        metavar="N",
        help="pod of the step (default 0)",
    )
    which.add_argument(
        "--all", action="store_true", help="print the logs of all pods of the step, with a prefix"
    )
    add("--tail", type=flagtypes.integer(0, 1 << 30), metavar="N", help="number of last lines (default all)")
    add("-f", "--follow", action="store_true", help="print new lines until the containers end")
    add("--previous", action="store_true", help="print the log of the previous run of the container")
    parser.set_defaults(function="trainerctl.cli.logs:logs_command")


def _change(verb: str) -> Add:
    def add_flags(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="+", type=flagtypes.name, help=f"names of the TrainJobs to {verb}"
        )
        _cluster(parser)
        parser.set_defaults(function=f"trainerctl.cli.change:{verb}_command")

    return add_flags


def _diff(parser: argparse.ArgumentParser) -> None:
    flagtypes.filenames(parser, "YAML or JSON files with the changed runtimes, or - for standard input")
    _cluster(parser)
    flagtypes.compatibility_version(parser)
    parser.epilog = "The exit code is 0 if the objects of no TrainJob change, and 1 if those of one do."
    parser.set_defaults(function="trainerctl.cli.diff:diff_command")


COMMANDS: Final[tuple[tuple[str, str, Add], ...]] = (
    ("get", "list TrainJobs, or show one with its JobSet, Jobs and pods", _get),
    ("why", "explain why a TrainJob does not run: the cause, its evidence, and the remedy", _why),
    ("describe", "show the state of a TrainJob, its objects and their events on one page", _describe),
    ("events", "print the events of a TrainJob and of all objects that belong to it", _events),
    ("history", "list the TrainJobs that have ended, and deleted ones that events still name", _history),
    ("logs", "print the logs of a TrainJob's pods, by step and rank", _logs),
    ("wait", "wait until a TrainJob reaches a state", _wait),
    ("diff", "show which TrainJobs a change of a runtime concerns, and how", _diff),
    ("suspend", "suspend TrainJobs; their pods are deleted", _change("suspend")),
    ("resume", "resume suspended TrainJobs", _change("resume")),
    ("delete", "delete TrainJobs with all their objects", _change("delete")),
)


def _named(parser: argparse.ArgumentParser, outputs: Sequence[str] = ()) -> None:
    parser.add_argument("name", metavar="NAME", type=flagtypes.name, help="name of the TrainJob")
    _cluster(parser, outputs)


def _cluster(parser: argparse.ArgumentParser, outputs: Sequence[str] = ()) -> None:
    add = parser.add_argument
    add(
        "-n",
        "--namespace",
        type=flagtypes.namespace,
        help="namespace of the TrainJob (default that of the kubeconfig's context)",
    )
    add("--kubeconfig", help="kubeconfig of the cluster (default as kubectl)")
    add("--context", help="context of the kubeconfig")
    if outputs:
        default = outputs[0]
        add("-o", "--output", choices=outputs, default=default, help=f"output format (default {default})")
