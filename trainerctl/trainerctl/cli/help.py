# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl help``: the help of a command, or its manual page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trainerctl.cli import examples, parser, streams

if TYPE_CHECKING:
    from trainerctl.cli.terminal import Console

_UNKNOWN: Final = 2
_EXIT: Final = (
    "0 for success, 1 for a failure, 2 for an invalid command line or input, and 128 plus the number of the signal "
    "that ended the command."
)


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
    sys.stdout.write(manual_page(found) if man else found.format_help())
    return 0


def subcommands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def manual_page(of: argparse.ArgumentParser) -> str:
    """Return the help of a command as a manual page, in the macros of man(7)."""
    return "\n".join(_lines(of)) + "\n"


def _lines(of: argparse.ArgumentParser) -> Iterator[str]:
    name = of.prog.replace(" ", "-")
    about = (of.description or "").rstrip(".")
    yield f'.TH {_text(name.upper())} 1 "" "trainerctl" "User Commands"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(about[:1].lower() + about[1:])}")
    yield from (".SH SYNOPSIS", ".nf", _text(_usage(of)), ".fi")
    for heading, text in (("DESCRIPTION", of.description), ("NOTES", of.epilog)):
        if text:
            yield from (f".SH {heading}", _text(text))
    for heading, entries in (("COMMANDS", _commands(of)), ("OPTIONS", _options(of))):
        found = list(entries)
        if found:
            yield f".SH {heading}"
        for term, text in found:
            yield from (".TP", f"\\fB{_text(term)}\\fR", _text(text))
    _, _, command = of.prog.partition(" ")
    shown = examples.EXAMPLES.get(command, ())
    if shown:
        yield ".SH EXAMPLES"
    for text, line in shown:
        yield from (".PP", f"{_text(text)}:", ".PP", ".nf", f"    trainerctl {_text(line)}", ".fi")
    # Commands with codes of their own describe them in their notes.
    yield from (".SH EXIT STATUS", _text("See NOTES." if "exit code" in (of.epilog or "") else _EXIT))


def _usage(of: argparse.ArgumentParser) -> str:
    return of.format_usage().removeprefix("usage: ").rstrip()


def _commands(of: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action._choices_actions:
                yield each.dest, each.help or ""


def _options(of: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    formatter = of._get_formatter()
    for action in of._actions:
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS:
            yield formatter._format_action_invocation(action), formatter._expand_help(action)


def _text(text: str) -> str:
    """Return text without meaning to the formatter."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines() or [""]
    return "\n".join(f"\\&{line}" if line.lstrip()[:1] in (".", "'") else line for line in lines)
