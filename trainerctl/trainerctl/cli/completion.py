# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Completion of command lines in bash, zsh and fish. It uses argcomplete.

``trainerctl completion`` prints a script for the shell. When the user asks for a completion, this script runs
``trainerctl`` and passes the command line in an environment variable.
"""

from __future__ import annotations

import argparse
from typing import Final

import anyio
import argcomplete
from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from trainerctl.cli.help import leaves
from trainerctl.cli.terminal import Console

_FILES: Final = ("files", "kubeconfig", "config", "kai_scheduler", "kai_binder", "kai_crds", "plot")
_NAMES: Final = ("name", "names")


async def completion_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    out.file.write(shellcode(["trainerctl"], shell=arguments.shell))
    return 0


def complete(top: argparse.ArgumentParser) -> None:
    """Write the completions of the command line in the environment variable, and end the process."""
    for command in leaves(top).values():
        for action in command._actions:
            if action.dest in _FILES:
                action.completer = FilesCompleter()  # type: ignore[attr-defined] # where argcomplete looks for it
            elif action.dest in _NAMES and not action.option_strings:
                action.completer = _train_jobs  # type: ignore[attr-defined] # as above
    argcomplete.autocomplete(top, always_complete_options=False, default_completer=SuppressCompleter())


def _train_jobs(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the names of the TrainJobs in the selected namespace. The flags select the cluster and the namespace."""
    return anyio.run(_names, parsed_args)


async def _names(arguments: argparse.Namespace) -> list[str]:
    from pkg.why import kinds  # here: few completions need the cluster

    from trainerctl.cli import live

    async with live.connect(arguments) as cluster:
        return [each.name for each in await cluster.all(kinds.TRAIN_JOB, namespace=cluster.namespace)]
