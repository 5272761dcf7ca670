# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the reference of ``trainerctl`` from its parser.

Tools for argparse leave out the examples of commands, which are kept outside of the parser.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from trainerctl.cli.help import EXAMPLES, leaves

from hack.markdown import NOTE, table

_HEAD: Final = ("argument", "meaning")


def page(parser: argparse.ArgumentParser) -> str:
    """Return the page: a section for each command, with its arguments and examples.

    Arguments that mean the same for at least three commands are explained once, below the introduction.
    """
    commands = {each: _rows(each) for each in leaves(parser).values()}
    shared: dict[str, str] = {}
    for (name, text), count in Counter(row for rows in commands.values() for row in rows).most_common():
        if count >= 3:
            shared.setdefault(name, text)
    return (
        f"# trainerctl\n\n{NOTE}\n{parser.description}\n\n"
        "Results go to standard output and everything else to standard error. The exit code is 0 for success, "
        "1 for a failure, 2 for an invalid\n"
        "command line or input, and 128 plus the number of the signal that ended the command. "
        "`trainerctl run` returns\nthe manager's exit code.\n\n"
        "## Shared arguments\n\nSeveral commands have these arguments; their sections only name them.\n\n"
        + table(_HEAD, shared.items())
        + "".join(_section(each, rows, shared) for each, rows in commands.items())
    )


def _rows(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    actions = [each for each in parser._actions if each.help != argparse.SUPPRESS and each.dest != "help"]
    return [(f"`{_named(each)}`", _help(each)) for each in actions]


def _section(parser: argparse.ArgumentParser, rows: list[tuple[str, str]], shared: Mapping[str, str]) -> str:
    own = [(name, text) for name, text in rows if shared.get(name) != text]
    others = ", ".join(name for name, text in rows if shared.get(name) == text)
    text = "".join(
        f"\n{each}\n"
        for each in (
            parser.description,
            table(_HEAD, own).rstrip("\n") if own else "",
            f"[Shared](#shared-arguments): {others}" if others else "",
            parser.epilog,
            _examples(parser.prog),
        )
        if each
    )
    return f"\n## {parser.prog}\n{text}"


def _examples(prog: str) -> str:
    program, _, command = prog.partition(" ")
    lines = [f"# {about}\n{program} {line}" for about, line in EXAMPLES.get(command, ())]
    return "```\n" + "\n".join(lines) + "\n```" if lines else ""


def _named(action: argparse.Action) -> str:
    if action.option_strings:
        names = ", ".join(action.option_strings)
        return names if action.nargs == 0 else f"{names} {_value(action)}"
    return _value(action) + ("…" if action.nargs in ("+", "*", argparse.REMAINDER) else "")


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(str(each) for each in action.choices)
    named = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f"{named}…" if action.option_strings and action.nargs in ("+", "*") else named


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": ""}
    return re.sub(r"([*_<>])", r"\\\1", text)
