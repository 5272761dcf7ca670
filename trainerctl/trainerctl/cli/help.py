# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl help``: the help of a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from trainerctl.cli import parser, streams

_UNKNOWN: Final = 2


def show(words: Sequence[str]) -> int:
    """Print the help of a command; return 2 if the command does not exist.

    Nothing slow is loaded for it.
    """
    found: argparse.ArgumentParser = parser.parser()
    for word in words:
        commands = dict(subcommands(found))
        if word not in commands:
            known = f"; the commands are {', '.join(commands)}" if commands else ""
            streams.say_error(f"{found.prog} has no command {word}{known}")
            return _UNKNOWN
        found = commands[word]
    sys.stdout.write(found.format_help())
    return 0


def subcommands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def leaves(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands below a parser that run, by name without that of the program."""
    found = list(subcommands(of))
    if not found:
        return {of.prog.partition(" ")[2]: of}
    return {name: leaf for _, below in found for name, leaf in leaves(below).items()}
