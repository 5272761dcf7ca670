# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a manager in a process, and determines the exit code. Each program has its own flags and setup.

An error that an operator can correct is printed as one line on stderr, without a traceback. The exit code is 2 for an
error in the command line, otherwise 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import importlib.metadata
import importlib.util
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import anyio
import controller_runtime as ctrl
from controller_runtime import log, rest
from controller_runtime.machinery import raised
from controller_runtime.machinery.errors import StatusError, one_line
from controller_runtime.machinery.printable import printable_line
from controller_runtime.manager import ManagerError

from pkg import config

from . import ending, goflags
from .flags import CommonFlags

DISTRIBUTION: Final = "trainer-controller-manager"
BAD_USAGE: Final = 2
FAILED: Final = 1

_FILES: Final = 1 << 16
_REACH: Final = 10.0
_SWITCH_INTERVAL: Final = 0.001
"""Seconds after which a thread that works on a large object lets the event loop run. Python's default is five times as
long, and a reconcile of another tenant would wait for it several times."""
_FREEZE_AFTER: Final = 1.0
"""Seconds from the filling of the caches until the collection before :func:`gc.freeze`."""
_EXPECTED: Final = (
    config.ConfigurationError,
    rest.RestError,
    StatusError,
    ManagerError,
    OSError,
)
"""Errors that an operator can correct. Such an error is printed in one line, without a traceback."""

Work = Callable[[], Awaitable[None]]


F = TypeVar("F", bound=CommonFlags)


def main(
    program: str,
    parse: Callable[[Sequence[str]], F],
    usage: Callable[[], str],
    run: Callable[[F], Awaitable[None]],
    arguments: Sequence[str] | None = None,
) -> int:
    """Parse the command line, call ``run`` with the parsed flags, and return the exit code."""
    try:
        parsed = parse(sys.argv[1:] if arguments is None else arguments)
    except goflags.HelpRequested:
        return _answer(program, usage())
    except goflags.FlagError as error:
        return print_error(program, error, BAD_USAGE)
    if parsed.version:
        return _answer(program, f"{program} {version()}\n")
    log.configure(parsed.log)
    return supervise(program, functools.partial(run, parsed))


def supervise(program: str, work: Work) -> int:
    """Run ``work`` on an event loop; return the exit code."""
    raise_file_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    use_uvloop = importlib.util.find_spec("uvloop") is not None
    deadline = ending.ExitDeadline(functools.partial(_report_unended, program))
    try:
        anyio.run(_with_deadline, work, deadline, backend_options={"use_uvloop": use_uvloop})
    except (*_EXPECTED, ExceptionGroup) as error:
        found = expected(error)
        if found is None:
            raise
        return print_error(program, found)
    except KeyboardInterrupt:
        return FAILED
    finally:
        deadline.loop_ended()
    return 0


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum, but not above 65536. Go programs do the same.

    The number of connections that a server accepts depends on this limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems reject their own maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(
    program: str,
    connection: rest.Config,
    options: ctrl.Options,
    setup: Callable[[ctrl.Manager], Awaitable[None]],
    config_file: str = "",
    *,
    traced: bool = False,
) -> None:
    """Create a manager, call ``setup`` to add its parts, and run it until a signal ends it.

    If ``traced`` is True, the manager's spans are exported.

    Raises:
        ConfigurationError: spans cannot be exported.
        ManagerError: the API server cannot be reached or does not accept the credentials, a part of the manager
            failed, or leadership was lost.
    """
    # The same name in audit logs and managedFields, independent of the path of the program.
    release = version()
    connection.user_agent = rest.user_agent(program, release)
    async with AsyncExitStack() as signals, AsyncExitStack() as stack:
        if traced:
            options = await stack.enter_async_context(_traced(options, program, release))
        mgr = await stack.enter_async_context(ctrl.Manager(connection, options))
        await mgr.reach(_REACH)
        log.logger_from("setup").info("Starting", program=program, version=release, configFile=config_file)
        await setup(mgr)
        stop = await signals.enter_async_context(ctrl.setup_signal_handler())
        mgr.add(_Freezer(mgr))
        await mgr.start(stop)


@asynccontextmanager
async def _traced(options: ctrl.Options, program: str, release: str) -> AsyncIterator[ctrl.Options]:
    """Yield ``options`` with the tracing that the environment describes. After the block, the last spans are sent.

    Raises:
        ConfigurationError: OpenTelemetry, or an exporter that the environment names, is not installed.
    """
    from controller_runtime.tracing import MissingExtraError

    try:
        from controller_runtime.tracing import from_environment  # loads OpenTelemetry

        tracing = from_environment(program, release)
    except MissingExtraError as error:
        raise config.ConfigurationError(f"--tracing: {error}") from error
    if tracing is None:
        log.logger_from("setup").warning(
            "--tracing has no effect: the OTEL_* environment variables disable it"
        )
        yield options
        return
    try:
        yield dataclasses.replace(options, tracing=tracing)
    finally:
        await tracing.shutdown()


class _Freezer:
    """A runnable. It excludes the objects in the filled caches from garbage collection."""

    def __init__(self, mgr: ctrl.Manager) -> None:
        self._mgr = mgr

    def need_leader_election(self) -> bool:
        """Return False: a standby fills its caches, too."""
        return False

    async def start(self) -> None:
        """Wait until the caches are filled, then exclude all objects that exist from garbage collection.

        The last collection blocks the event loop for tens of milliseconds. It begins a second later, so that the first
        objects to be reconciled, for which users wait, do not wait for it.
        """
        await self._mgr.cache.ready()
        await anyio.sleep(_FREEZE_AFTER)
        gc.collect()
        gc.freeze()


def expected(error: BaseException) -> BaseException | None:
    """Return the first error in ``error`` that an operator can correct.

    Return None if ``error`` contains an error that an operator cannot correct.
    """
    return raised.first_of(_EXPECTED, error)


def print_error(program: str, error: BaseException, code: int = FAILED) -> int:
    with contextlib.suppress(OSError, AttributeError):  # a full disk, a closed stream
        sys.stderr.write(f"{program}: {printable_line(one_line(error))}\n")
        sys.stderr.flush()
    return code


def _answer(program: str, text: str) -> int:
    """Print the answer to a flag such as ``--help``. A closed pipe is not an error."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes the stream again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if isinstance(error, BrokenPipeError) else print_error(program, error)
    return 0


async def _with_deadline(work: Work, deadline: ending.ExitDeadline) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # Without a handler, these signals end the process. Having handlers also makes every other signal wake the loop.
        loop.add_signal_handler(number, int)
    with deadline.within():
        await work()


def _report_unended(program: str, error: BaseException | None) -> int:
    if error is not None:
        print_error(program, expected(error) or error)
    return print_error(
        program, RuntimeError("code in a thread did not end; the process ends without waiting for it")
    )


def version() -> str:
    return importlib.metadata.version(DISTRIBUTION)
