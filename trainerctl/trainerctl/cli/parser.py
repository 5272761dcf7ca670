# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: the commands, their flags, and the function that runs each command.

A function is given as ``module:name`` and loaded by :mod:`trainerctl.cli.execution`, so that help, ``--version`` and
usage errors do not load the commands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from controller_runtime.machinery.printable import printable_line

from trainerctl.cli import clusterflags, flagtypes, liveflags, newflags
from trainerctl.localcluster.names import DEFAULT_NAME

PROGRAM: Final = "trainerctl"
DISTRIBUTION: Final = "trainerctl"
HELP: Final = "trainerctl.cli.help:help_command"
_FILES: Final = (
    "YAML or JSON files with any number of documents, folders of such files, or - for standard input"
)


class Parser(argparse.ArgumentParser):
    """argparse's parser; text that it quotes from the command line cannot control the terminal."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with code 2."""
        super().error(printable_line(message))

    def format_help(self) -> str:
        """Return the help, with examples."""
        from trainerctl.cli import examples  # only help needs them

        return super().format_help() + examples.section(self.prog)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; ``rest`` holds the flags that ``run`` passes to the manager.

    Raises:
        SystemExit: help or the version was printed, or the command line is not valid.
    """
    top = parser()
    parsed, rest = top.parse_known_args(list(arguments))
    if rest and not parsed.passes_flags:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    # The separator marks flags that are not those of trainerctl; the manager takes it for the end of its flags.
    if "--" in rest:
        rest.remove("--")
    parsed.rest = rest
    return parsed


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = Parser(prog=PROGRAM, description="Run, inspect and validate Kubeflow TrainJobs on this machine.")
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    top.set_defaults(passes_flags=False, cleans_up=False)
    commands = top.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, about, add_flags in COMMANDS:
        add_flags(commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}."))
    return top


def _demo(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--nodes",
        type=flagtypes.integer(1, 100),
        default=3,
        metavar="N",
        help="nodes of the TrainJob (default 3)",
    )
    add(
        "--timeout",
        type=flagtypes.seconds,
        default=60,
        metavar="SECONDS",
        help="time limit of the TrainJob (default 60)",
    )
    parser.set_defaults(function="trainerctl.cli.demo:demo_command", cleans_up=True)


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name",
        type=flagtypes.cluster,
        default=DEFAULT_NAME,
        help=f"name of the local cluster (default '{DEFAULT_NAME}')",
    )
    parser.add_argument(
        "--kubeconfig", help="use the cluster of this kubeconfig, with its credentials, instead"
    )
    parser.epilog = (
        "All other flags, and all arguments after --, are passed to trainer-controller-manager. With --kubeconfig the "
        "manager runs with --webhooks=false, because the cluster's API server cannot reach this machine; --webhooks "
        "serves the webhooks nevertheless."
    )
    parser.set_defaults(function="trainerctl.cli.run:run_command", passes_flags=True)


def _render(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("yaml", "json", "table"))
    _runtimes_from_cluster(parser)
    flagtypes.compatibility_version(parser)
    parser.set_defaults(function="trainerctl.cli.render:render_command")


def _explain(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json", "yaml"))
    _runtimes_from_cluster(parser)
    flagtypes.compatibility_version(parser)
    parser.set_defaults(function="trainerctl.cli.explain:explain_command")


def _validate(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json"))
    flagtypes.compatibility_version(parser)
    parser.set_defaults(function="trainerctl.cli.validate:validate_command")


def _convert(parser: argparse.ArgumentParser) -> None:
    flagtypes.filenames(parser, _FILES)
    parser.add_argument(
        "--to",
        choices=("2.1", "2.3"),
        required=True,
        help="release of Trainer whose fields the objects are to have: 2.1, or 2.3 for v2.2 and v2.3",
    )
    _output(parser, ("yaml", "json"))
    parser.set_defaults(function="trainerctl.cli.convert:convert_command")


def _group(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json", "yaml"))
    parser.add_argument(
        "--config", metavar="FILE", help="Configuration of the manager, for the pod grouper's settings"
    )
    parser.add_argument(
        "--groupers",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="files that declare how the pods of a kind are grouped, in addition to those of the Configuration",
    )
    parser.add_argument(
        "--rules",
        choices=("v0.13", "v0.17"),
        help="KAI-Scheduler release whose rules apply (default: that of the PodGroup's CRD in the files, else v0.13)",
    )
    parser.set_defaults(function="trainerctl.cli.group:group_command")


def _crds(parser: argparse.ArgumentParser) -> None:
    _output(parser, ("yaml", "json"))
    parser.add_argument(
        "--apply", action="store_true", help="apply the CRDs (server-side) instead of printing them"
    )
    parser.add_argument("--kubeconfig", help="kubeconfig of the cluster for --apply (default as kubectl)")
    parser.set_defaults(function="trainerctl.cli.crds:crds_command")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell that runs the script")
    parser.set_defaults(function="trainerctl.cli.completion:completion_command")


def _help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="command, such as cluster up")
    parser.add_argument(
        "--man", action="store_true", help="print the manual page of the command, for man -l -"
    )
    parser.set_defaults(function=HELP)


COMMANDS: Final[tuple[tuple[str, str, Callable[[argparse.ArgumentParser], None]], ...]] = (
    (
        "cluster",
        "manage local clusters: a real control plane with simulated GPU nodes",
        clusterflags.add_flags,
    ),
    ("demo", "run one TrainJob to completion on a temporary local cluster", _demo),
    ("run", "run the manager against a local cluster or a kubeconfig", _run),
    ("render", "print the objects that TrainJobs create, without a cluster", _render),
    ("explain", "show stage by stage how TrainJobs become objects", _explain),
    ("validate", "print what an API server would answer to TrainJobs and runtimes", _validate),
    ("convert", "rewrite TrainJobs and runtimes of Trainer v2.1 for v2.3, or back", _convert),
    ("group", "show the group that the pod grouper assigns to each pod, and why", _group),
    ("crds", "print or apply the CRDs", _crds),
    *liveflags.COMMANDS,
    ("new", "write a TrainJob from flags or questions, and validate it", newflags.add_flags),
    ("completion", "print the script that completes commands, flags and names in a shell", _completion),
    ("help", "show the help of a command, with examples", _help),
)


def _files(parser: argparse.ArgumentParser, *, outputs: Sequence[str]) -> None:
    flagtypes.filenames(parser, _FILES)
    parser.add_argument(
        "-n",
        "--namespace",
        type=flagtypes.namespace,
        default="default",
        help="namespace for objects that do not set one (default 'default')",
    )
    _output(parser, outputs)


def _output(parser: argparse.ArgumentParser, outputs: Sequence[str]) -> None:
    parser.add_argument(
        "-o", "--output", choices=outputs, default=outputs[0], help=f"output format (default {outputs[0]})"
    )


def _runtimes_from_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", help="read runtimes missing from the files from this kubeconfig's cluster"
    )
    parser.add_argument("--context", help="kubeconfig context of that cluster")


class _Version(argparse.Action):
    """Prints the version, which takes longer to find than all the rest of the command line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            text = version(DISTRIBUTION)
        except PackageNotFoundError:
            text = "unknown"
        sys.stdout.write(f"{PROGRAM} {text}\n")
        parser.exit()
