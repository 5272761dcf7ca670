# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import io
import json
import logging
import os
import signal
import subprocess
import sys

import anyio
import pytest

from controller_runtime import log
from controller_runtime.envtest import eventually
from controller_runtime.manager import setup_signal_handler


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ignored", [False, True])
async def test_the_first_signal_asks_to_stop_and_the_second_ends_the_process(
    number: signal.Signals, *, ignored: bool
) -> None:
    codes: list[int] = []
    ended = anyio.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    before = signal.signal(number, signal.SIG_IGN) if ignored else signal.getsignal(number)
    try:
        with anyio.fail_after(60):
            async with setup_signal_handler(exit_now) as stop:
                os.kill(os.getpid(), number)
                await stop.wait()
                assert codes == []
                os.kill(os.getpid(), number)
                await ended.wait()
    finally:
        signal.signal(number, before)
    assert codes == [1]


@pytest.mark.real_time
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
async def test_the_handlers_of_before_are_in_force_again_at_the_end(
    number: signal.Signals, before: signal.Handlers
) -> None:
    restored = signal.signal(number, before)
    try:
        async with setup_signal_handler():
            assert signal.getsignal(number) != before
        assert signal.getsignal(number) == before
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.signal(number, restored)


@pytest.fixture
def lines() -> io.StringIO:
    """The log's output, starting at level info."""
    stream = io.StringIO()
    log.configure(stream=stream)
    return stream


@pytest.mark.real_time
async def test_one_signal_lets_the_log_tell_more_step_by_step_and_the_other_puts_it_back(
    lines: io.StringIO,
) -> None:
    seen: list[int] = []

    async def level(number: signal.Signals) -> None:
        count = len(lines.getvalue().splitlines())
        os.kill(os.getpid(), number)
        await eventually(
            lambda: len(lines.getvalue().splitlines()) > count, interval=0.005, reason="the change is told"
        )
        seen.append(json.loads(lines.getvalue().splitlines()[-1])["verbosity"])
        assert log.logger_from().enabled(seen[-1])
        assert not log.logger_from().enabled(seen[-1] + 1)

    with anyio.fail_after(60):
        async with setup_signal_handler():
            for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR2):
                await level(number)
    assert seen == [log.DEBUG, log.TRACE, log.TRACE, log.INFO]
    assert logging.getLogger().level == logging.WARNING


@pytest.mark.real_time
async def test_the_change_is_logged_although_the_level_is_that_of_errors() -> None:
    stream = io.StringIO()
    log.configure(log.Options.from_flags(level="error"), stream=stream)
    async with setup_signal_handler():
        os.kill(os.getpid(), signal.SIGUSR2)
        await eventually(
            lambda: "Log level changed" in stream.getvalue(), interval=0.005, reason="it is logged"
        )
    assert not log.logger_from().enabled(log.INFO)


_BLOCKED = """
import asyncio, sys, time
from controller_runtime.manager import setup_signal_handler
async def main():
    async with setup_signal_handler():
        print("blocked", flush=True)
        time.sleep(60)
asyncio.run(main())
"""


@pytest.mark.real_time
def test_a_second_signal_ends_a_process_whose_event_loop_is_blocked() -> None:
    with subprocess.Popen([sys.executable, "-c", _BLOCKED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1
