# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl help``: the help of a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trainerctl.cli import parser, streams

if TYPE_CHECKING:
    from trainerctl.cli.terminal import Console

_UNKNOWN: Final = 2


async def help_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the help."""
    return show(arguments.words, man=arguments.man)


def show(words: Sequence[str], *, man: bool = False) -> int:
    """Print the help of a command, or its manual page; return 2 if the command does not exist.

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
    if man:
        from trainerctl.cli import manpage

        sys.stdout.write(manpage.page(found))
    else:
        sys.stdout.write(found.format_help())
    return 0


def subcommands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()
