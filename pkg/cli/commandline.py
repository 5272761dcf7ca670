# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl``'s command line: its parser, and one command from its arguments to its exit code."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import anyio
from controller_runtime.apis.machinery.errors import StatusError
from controller_runtime.envtest import EnvtestError, EventuallyError
from controller_runtime.manager import ManagerError
from controller_runtime.rest import RestError

from pkg.cli import cluster_commands, crds, demo, explain, group, render, validate
from pkg.cli import run as manager_run
from pkg.cli.arguments import Parser
from pkg.cli.signals import Signals
from pkg.cli.terminal import Console
from pkg.offline import documents

PROGRAM: Final = "trainerctl"
_EXPECTED: Final = (EnvtestError, EventuallyError, ManagerError, RestError, StatusError, OSError, ValueError)

Command = Callable[[argparse.Namespace, Console, Console], Awaitable[int]]


def run(arguments: Sequence[str], signals: Signals | None = None) -> int:
    """Run the command that ``arguments`` name and return its exit code; ``signals`` cancel it."""
    out, err = Console(), Console(stderr=True)
    try:
        try:
            code = _run(arguments, signals, out, err)
        finally:
            _flush()
    except BrokenPipeError:
        _discard_output()
        return 128 + signal.SIGPIPE
    except (*_EXPECTED, ExceptionGroup) as error:
        if (expected := _expected(error)) is None:
            raise
        return _complain(expected, err)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = Parser(prog=PROGRAM, description="Run, inspect and validate Kubeflow TrainJobs on this machine.")
    top.add_argument("--version", action="version", version=f"{PROGRAM} {_version()}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, about, add in (
        (
            "cluster",
            "manage local clusters: a real control plane with simulated GPU nodes",
            cluster_commands.add_arguments,
        ),
        ("demo", "run one TrainJob to completion on a temporary local cluster", demo.add_arguments),
        ("run", "run the manager against a local cluster or a kubeconfig", manager_run.add_arguments),
        ("render", "print the objects that TrainJobs create, without a cluster", render.add_arguments),
        ("explain", "show stage by stage how TrainJobs become objects", explain.add_arguments),
        (
            "validate",
            "print what an API server would answer to TrainJobs and runtimes",
            validate.add_arguments,
        ),
        ("group", "show the group that the pod grouper gives each pod, and why", group.add_arguments),
        ("crds", "print or apply the CRDs", crds.add_arguments),
    ):
        add(commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}."))
    return top


def _run(arguments: Sequence[str], signals: Signals | None, out: Console, err: Console) -> int:
    if arguments[:1] == ["run"]:
        return manager_run.main(arguments[1:])
    parsed = parser().parse_args(arguments)
    command: Command = parsed.run
    if signals is None or not getattr(parsed, "cleans_up", False):
        return anyio.run(command, parsed, out, err)
    return anyio.run(_until_signal, command, parsed, out, err, signals)


async def _until_signal(
    command: Command, parsed: argparse.Namespace, out: Console, err: Console, signals: Signals
) -> int:
    """Run ``command``; a signal cancels it, which lets it clean up, and decides the exit code."""
    loop = asyncio.get_running_loop()
    code = 1
    with anyio.CancelScope() as scope:

        def cancel() -> None:
            if not scope.cancel_called:
                err.say("Stopping.")
                scope.cancel()

        signals.cancel = lambda: loop.call_soon_threadsafe(cancel)
        try:
            code = await command(parsed, out, err)
        except Exception:
            if signals.received is None:
                raise
        finally:
            signals.cancel = None
    return code if signals.received is None else 128 + signals.received


def _expected(error: BaseException) -> BaseException | None:
    """Return the first error that the user can act on; None if there is any other."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, _EXPECTED) else None
    found = [_expected(each) for each in error.exceptions]
    return found[0] if all(found) else None


def _complain(error: BaseException, err: Console) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    with suppress(OSError):
        err.say(f"{PROGRAM}: {text or type(error).__name__}")
    _discard_output()
    return documents.BAD_INPUT if isinstance(error, documents.InputError) else 1


def _flush() -> None:
    """Write what is still buffered, while an error can be reported."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _discard_output() -> None:
    """Point the streams at nothing: the interpreter writes what is left in them when it ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
            continue
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _version() -> str:
    try:
        return version("trainer-controller-manager")
    except PackageNotFoundError:
        return "unknown"
