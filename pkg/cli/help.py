# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl help``: the help of a command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from pkg.cli import parser
from pkg.cli.terminal import Console
from pkg.offline.inputfiles import InputError


async def help_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the help.

    Raises:
        InputError: the command does not exist.
    """
    found: argparse.ArgumentParser = parser.parser()
    for word in arguments.words:
        commands = dict(subcommands(found))
        if word not in commands:
            known = f"; the commands are {', '.join(commands)}" if commands else ""
            raise InputError(f"{found.prog} has no command {word}{known}")
        found = commands[word]
    out.file.write(found.format_help())
    return 0


def subcommands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()
