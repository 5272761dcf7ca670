# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl completion``: completion scripts for bash, zsh and fish, generated from the parser.

Names of TrainJobs come from the cluster: the script runs ``trainerctl get -o name``.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from trainerctl.cli import parser
from trainerctl.cli.help import subcommands
from trainerctl.cli.terminal import Console

_FILES: Final = ("files", "kubeconfig", "config", "kai_scheduler", "kai_binder", "kai_crds")
_NAMES: Final = ("name", "names")


class Command(NamedTuple):
    """A command, and the words that may follow it."""

    path: tuple[str, ...]
    about: str
    parser: argparse.ArgumentParser

    @property
    def words(self) -> list[str]:
        """The subcommands, or the choices of a positional argument."""
        found = [name for name, _ in subcommands(self.parser)]
        return found or [str(each) for action in _positionals(self.parser) for each in action.choices or ()]

    @property
    def flags(self) -> list[argparse.Action]:
        """The flags."""
        return [each for each in self.parser._actions if each.option_strings]

    @property
    def names_train_jobs(self) -> bool:
        """True if the argument is the name of a TrainJob."""
        return any(each.dest in _NAMES for each in _positionals(self.parser))


async def completion_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the script."""
    writers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    out.file.write(writers[arguments.shell]())
    return 0


def commands() -> Iterator[Command]:
    """Yield every command, the program itself first."""
    yield from _commands((), "", parser.parser())


def _commands(path: tuple[str, ...], about: str, of: argparse.ArgumentParser) -> Iterator[Command]:
    yield Command(path, about, of)
    for name, below in subcommands(of):
        yield from _commands((*path, name), (below.description or "").rstrip("."), below)


def _positionals(of: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        each
        for each in of._actions
        if not each.option_strings and not isinstance(each, argparse._SubParsersAction)
    ]


def _bash() -> str:
    found = list(commands())
    steps = "|".join(shlex.quote(" ".join(("", *each.path))) for each in found if each.path)
    lines = [
        "# Completion of trainerctl for bash.",
        "_trainerctl_jobs() {",
        "  local flags=() i",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "${COMP_WORDS[i]}" in',
        '      -n|--namespace|--kubeconfig|--context) flags+=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}") ;;',
        "    esac",
        "  done",
        '  trainerctl get -o name "${flags[@]}" 2>/dev/null </dev/null | cut -d/ -f2',
        "}",
        "_trainerctl() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}" path="" words="" i',
        "  COMPREPLY=()",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$path ${COMP_WORDS[i]}" in',
        f'      {steps}) path="$path ${{COMP_WORDS[i]}}" ;;',
        "    esac",
        "  done",
        '  case "$path:$prev" in',
        *(line for each in found for line in _bash_values(each)),
        "  esac",
        '  case "$path" in',
        *(line for each in found for line in _bash_words(each)),
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _trainerctl trainerctl",
    ]
    return "\n".join(lines) + "\n"


def _bash_values(command: Command) -> Iterator[str]:
    """Yield the cases of a command's flags with a value."""
    path = " ".join(("", *command.path))
    for flag in command.flags:
        if flag.nargs == 0:
            continue
        cases = "|".join(shlex.quote(f"{path}:{option}") for option in flag.option_strings)
        if flag.choices:
            words = " ".join(map(str, flag.choices))
            yield f'    {cases}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;'
        elif flag.dest in _FILES:
            yield f'    {cases}) COMPREPLY=($(compgen -f -- "$cur")); return ;;'
        else:
            yield f"    {cases}) return ;;"


def _bash_words(command: Command) -> Iterator[str]:
    flags = " ".join(option for flag in command.flags for option in flag.option_strings)
    words = " ".join(command.words)
    yield f"    {shlex.quote(' '.join(('', *command.path)))})"
    yield f'      if [[ "$cur" == -* ]]; then words="{flags}"; else words="{words}"; fi'
    if command.names_train_jobs:
        yield '      if [[ "$cur" != -* ]]; then words="$(_trainerctl_jobs)"; fi'
    yield "      ;;"


def _zsh() -> str:
    return "#compdef trainerctl\nautoload -U +X bashcompinit && bashcompinit\n" + _bash().replace(
        "for bash", "for zsh"
    )


def _fish() -> str:
    lines = ["# Completion of trainerctl for fish.", "complete -c trainerctl -f"]
    for command in commands():
        condition = shlex.quote(_fish_condition(command))
        for name, below in subcommands(command.parser):
            about = shlex.quote((below.description or "").rstrip("."))
            lines.append(f"complete -c trainerctl -n {condition} -a {name} -d {about}")
        if not any(subcommands(command.parser)):
            lines += [
                f"complete -c trainerctl -n {condition} -a {shlex.quote(word)}" for word in command.words
            ]
        if command.names_train_jobs:
            names = "'(trainerctl get -o name 2>/dev/null | string split -f2 /)'"
            lines.append(f"complete -c trainerctl -n {condition} -a {names} -d TrainJob")
        lines += [f"complete -c trainerctl -n {condition} {_fish_flag(flag)}" for flag in command.flags]
    return "\n".join(lines) + "\n"


def _fish_condition(command: Command) -> str:
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.path]
    below = [name for name, _ in subcommands(command.parser)]
    if below:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(below)}")
    return "; and ".join(seen)


def _fish_flag(flag: argparse.Action) -> str:
    parts = [
        f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        for option in flag.option_strings
    ]
    if flag.nargs != 0:
        parts.append("-r")
    if flag.choices:
        parts.append(f"-a {shlex.quote(' '.join(map(str, flag.choices)))}")
    elif flag.dest in _FILES:
        parts.append("-F")
    if flag.help:
        parts.append(f"-d {shlex.quote(flag.help % {**vars(flag), 'prog': 'trainerctl'})}")
    return " ".join(parts)
