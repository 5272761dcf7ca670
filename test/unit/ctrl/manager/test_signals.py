# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import os
import signal

import anyio
import pytest

from pkg.ctrl.manager import setup_signal_handler


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_to_stop_and_the_second_ends_the_process(number: signal.Signals) -> None:
    codes: list[int] = []
    ended = anyio.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    with anyio.fail_after(10):
        async with setup_signal_handler(exit_now) as stop:
            os.kill(os.getpid(), number)
            await stop.wait()
            assert codes == []
            os.kill(os.getpid(), number)
            await ended.wait()
    assert codes == [1]
