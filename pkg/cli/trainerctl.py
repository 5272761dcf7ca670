# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl``: the tool a person holds.

Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 for a failure
that one line explains, 2 for a command line or an input that makes no sense, and 128 plus the signal's number after Ctrl-C and
its like, when whatever the command had started has been ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import anyio
from rich.console import Console

from pkg.apis.machinery.errors import StatusError
from pkg.cli import cluster, crds, demo, documents, explain, group, render, run, validate
from pkg.ctrl.envtest import EnvtestError, EventuallyError
from pkg.ctrl.rest import RestError

PROGRAM: Final = "trainerctl"
_EXPECTED: Final = (EnvtestError, EventuallyError, RestError, StatusError, OSError, ValueError)

Command = Callable[[argparse.Namespace, Console, Console], Awaitable[int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["run"]:
        return run.main(arguments[1:])
    parsed = parser().parse_args(arguments)
    out, err = Console(), Console(stderr=True)
    try:
        return anyio.run(_until_signal, parsed.run, parsed, out, err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read it has had enough
        return 128 + signal.SIGPIPE
    except _EXPECTED as error:
        err.print(f"{PROGRAM}: {error}", highlight=False, markup=False, soft_wrap=True)
        return documents.BAD_INPUT if isinstance(error, documents.InputError) else 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(prog=PROGRAM, description="Kubeflow Trainer on your laptop, and beside it.")
    top.add_argument("--version", action="version", version=f"{PROGRAM} {_version()}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, about, add in (
        ("cluster", "a local cluster: a real control plane with simulated GPU nodes", cluster.add_arguments),
        ("demo", "run one TrainJob on a throwaway cluster, from nothing to Complete", demo.add_arguments),
        ("run", "run the manager against the local cluster or a kubeconfig", run.add_arguments),
        ("render", "print the objects that TrainJobs would become, without a cluster", render.add_arguments),
        ("explain", "show stage by stage what makes TrainJobs into objects", explain.add_arguments),
        ("validate", "say what an API server would answer to TrainJobs and runtimes", validate.add_arguments),
        ("group", "show what group pods would get from the pod grouper, and why", group.add_arguments),
        ("crds", "print the CRDs, or apply them", crds.add_arguments),
    ):
        add(commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}."))
    return top


def _version() -> str:
    try:
        return version("trainer-controller-manager")
    except PackageNotFoundError:
        return "unknown"


async def _until_signal(command: Command, parsed: argparse.Namespace, out: Console, err: Console) -> int:
    """Run ``command``; a signal cancels it, which lets it clean up, and decides the exit code."""
    code: int | None = None
    failure: Exception | None = None

    async def watch() -> None:
        nonlocal code
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                code = 128 + number
                err.print("Stopping.")
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            code = await command(parsed, out, err)
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None and code is None:
        raise failure
    return 1 if code is None else code
