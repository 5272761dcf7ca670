# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the reference of ``trainerctl`` from its parser.

Tools for argparse leave out the examples of commands, which are kept outside of the parser.
"""

from __future__ import annotations

import argparse
import re

from trainerctl.cli.help import EXAMPLES, leaves

from hack.markdown import NOTE, table


def page(parser: argparse.ArgumentParser) -> str:
    """Return the page: a section for each command, with its arguments and examples."""
    return (
        f"# trainerctl\n\n{NOTE}\n{parser.description}\n\n"
        "Results go to standard output and everything else to standard error. The exit code is 0 for success, "
        "1 for a failure, 2 for an invalid\n"
        "command line or input, and 128 plus the number of the signal that ended the command. "
        "`trainerctl run` returns\nthe manager's exit code.\n"
        + "".join(_section(each) for each in leaves(parser).values())
    )


def _section(parser: argparse.ArgumentParser) -> str:
    actions = [each for each in parser._actions if each.help != argparse.SUPPRESS and each.dest != "help"]
    arguments = table(("argument", "meaning"), [(f"`{_named(each)}`", _help(each)) for each in actions])
    text = "".join(
        f"\n{each}\n"
        for each in (
            parser.description,
            arguments.rstrip("\n") if actions else "",
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
