# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The parser of the command line; help, ``--version`` and usage errors come from here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from controller_runtime.machinery.printable import printable_line

from trainerctl.cli import flags

PROGRAM: Final = "trainerctl"
"""The name of the program and of its distribution."""


class Parser(argparse.ArgumentParser):
    """argparse's parser. Text from the command line that its messages quote cannot control the terminal."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with code 2."""
        super().error(printable_line(message))

    def format_help(self) -> str:
        """Return the help, with examples."""
        from trainerctl.cli import help as help_  # only help needs the examples

        return super().format_help() + help_.examples(self.prog)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; ``rest`` holds the flags that ``run`` passes to the manager.

    Raises:
        SystemExit: help or the version was printed, or the command line is not valid.
    """
    top = parser()
    if "_ARGCOMPLETE" in os.environ:
        from trainerctl.cli import completion  # slow to load

        completion.complete(top)
    parsed, rest = top.parse_known_args(list(arguments))
    if rest and not parsed.passes_flags:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    # "--" separates the manager's flags from trainerctl's. The manager would take "--" for the end of its flags.
    if "--" in rest:
        rest.remove("--")
    parsed.rest = rest
    return parsed


def parser() -> Parser:
    """Return the parser of the whole command line."""
    top = Parser(prog=PROGRAM, description="Run, inspect and validate Kubeflow TrainJobs on this machine.")
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    top.set_defaults(passes_flags=False, cleans_up=False)
    flags.add_commands(top, flags.COMMANDS)
    return top


class _Version(argparse.Action):
    """Prints the version. It is looked up only here, because the lookup takes longer than parsing the command line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            text = version(PROGRAM)
        except PackageNotFoundError:
            text = "unknown"
        sys.stdout.write(f"{PROGRAM} {text}\n")
        parser.exit()
