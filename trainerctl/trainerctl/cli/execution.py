# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Executes a parsed command line: loads and runs the command's function, and prints expected errors as text."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from controller_runtime.machinery import raised

from trainerctl.cli import streams
from trainerctl.cli.signals import Signals
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles

_EXPECTED: Final = (raised.ExpectedError, OSError, ValueError)

Command = Callable[[argparse.Namespace, Console, Console], Awaitable[int]]


def run(parsed: argparse.Namespace, signals: Signals | None) -> int:
    """Run the command and return its exit code. ``signals`` may cancel the command.

    Raises:
        BrokenPipeError: the reader of the output has closed the pipe.
    """
    try:
        return _run(parsed, signals)
    except BrokenPipeError:
        raise
    except Exception as error:
        expected = raised.first_of(_EXPECTED, error) or raised.first_of((*_EXPECTED, *_slow_to_load()), error)
        if expected is None:
            raise
        if isinstance(expected, BrokenPipeError):  # raised in a task group
            raise expected from None
        streams.say_error(streams.describe(expected))
        streams.discard()
        return inputfiles.BAD_INPUT if isinstance(expected, inputfiles.InputError) else 1


def _slow_to_load() -> tuple[type[Exception], ...]:
    """Return the other expected errors. Most commands do not need the modules that define them."""
    from controller_runtime.envtest import EnvtestError, EventuallyError
    from controller_runtime.manager import ManagerError

    return EnvtestError, EventuallyError, ManagerError


def function(name: str) -> Callable[..., Any]:
    """Return the function ``module:name``."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def _run(parsed: argparse.Namespace, signals: Signals | None) -> int:
    command = function(parsed.function)
    code: int
    if parsed.passes_flags:
        code = command(parsed)  # the manager runs its own event loop
        return code
    # The warnings of the library are for programs with a log; what a person must know is in the text of errors.
    logging.getLogger("controller_runtime").addHandler(logging.NullHandler())
    out, err = Console(), Console(stderr=True)
    if signals is None:
        code = anyio.run(command, parsed, out, err)
    else:
        code = anyio.run(_until_signal, command, parsed, out, err, signals)
    return code


async def _until_signal(
    command: Command, parsed: argparse.Namespace, out: Console, err: Console, signals: Signals
) -> int:
    """Run ``command`` and return the exit code.

    A signal cancels a command that has something to clean up. The exit code is then that of the signal.
    """
    loop = asyncio.get_running_loop()
    # An event loop with a handler for one signal is woken by every signal; a loop without any handler may notice
    # a signal only at its next event.
    loop.add_signal_handler(signal.SIGURG, int)
    code = 1
    with anyio.CancelScope() as scope:

        def cancel() -> None:
            if not scope.cancel_called:
                err.say("Stopping.")
                scope.cancel()

        if parsed.cleans_up:
            signals.cancel = lambda: loop.call_soon_threadsafe(cancel)
        try:
            code = await command(parsed, out, err)
        except Exception:  # raised again, unless a signal ended the command
            if signals.received is None:
                raise
        finally:
            signals.cancel = None
    return code if signals.received is None else 128 + signals.received
