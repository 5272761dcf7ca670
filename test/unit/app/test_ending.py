# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pkg.app.ending import ExitDeadline

STUCK = """
import asyncio, sys, threading
import anyio.to_thread
from pkg.app import ending, process, program

async def leave_a_thread_behind(parsed, cfg):
    to_thread = {"anyio": anyio.to_thread.run_sync, "asyncio": asyncio.to_thread}[sys.argv[1]]
    leave_a_thread_behind.task = asyncio.create_task(to_thread(threading.Event().wait))
    await anyio.sleep(0.1)
    raise process.ManagerError("the grace period is over")

program.run = leave_a_thread_behind
ending.ExitDeadline.__init__.__kwdefaults__["seconds"] = 0.5
sys.exit(program.main([]))
"""


@pytest.mark.parametrize("library", ["anyio", "asyncio"])
def test_the_process_ends_with_its_reason_although_a_thread_does_not(library: str) -> None:
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", STUCK, library],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 1
    assert "the grace period is over" in ended.stderr
    assert "code in a thread did not end" in ended.stderr


def test_what_ends_in_time_is_not_ended() -> None:
    ended: list[int] = []
    deadline = ExitDeadline(lambda error: 1, seconds=3600, exit_now=ended.append)
    with deadline.within():
        pass
    deadline.loop_ended()
    assert ended == []


def test_the_error_that_the_manager_ended_with_is_reported() -> None:
    reported: list[BaseException | None] = []
    codes: list[object] = []
    over = threading.Event()

    def report(error: BaseException | None) -> int:
        reported.append(error)
        return 7

    def exit_now(code: int) -> None:
        codes.append(code)
        over.set()

    deadline = ExitDeadline(report, seconds=0, exit_now=exit_now)
    failure = ValueError("why")
    with pytest.raises(ValueError, match="why"), deadline.within():
        raise failure
    assert over.wait(20)
    assert (reported, codes) == ([failure], [7])


def test_the_process_is_ended_if_one_of_several_threads_does_not_end() -> None:
    over = threading.Event()
    events = [threading.Event(), threading.Event()]
    ends, hangs = threads = [threading.Thread(target=event.wait) for event in events]
    for thread in threads:
        thread.start()
    deadline = ExitDeadline(lambda error: 1, seconds=0.5, exit_now=lambda _: over.set())
    try:
        with deadline.within():
            pass
        deadline.loop_ended()
        events[0].set()
        ends.join()
        assert over.wait(20)
    finally:
        events[1].set()
        hangs.join()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1500))
from pkg.app import process

async def report():
    print(resource.getrlimit(resource.RLIMIT_NOFILE))

sys.exit(process.supervise("p", report))
"""


def test_the_process_may_open_as_many_files_as_it_is_allowed_to() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "(1500, 1500)\n")
