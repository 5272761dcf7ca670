# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The processes below this one. Those whose parents end become its children, so none is lost."""

import ctypes
import os
import signal
import time
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_libc = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Let this process be killed when its parent ends, or now if that has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def descendants() -> list[int]:
    """Return the processes below this one."""
    found: list[int] = []
    left = [os.getpid()]
    while left:
        for child in _children(left.pop()):
            found.append(child)
            left.append(child)
    return found


def reap(main: int) -> int | None:
    """Collect the children that have ended, and return the wait status of ``main`` if it is one of them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == main:
            found = status


def kill(timeout: float = 10) -> None:
    """Kill all descendants, including those that they start meanwhile, and collect them."""
    deadline = time.monotonic() + timeout
    while (left := descendants()) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended, or belongs to another user
                continue
        reap(0)
        time.sleep(0.002)


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the start of the machine.

    Raises:
        OSError: the process has ended.
    """
    return int(stat(pid)[19])


def stat(pid: int) -> list[bytes]:
    """Return the fields of proc_pid_stat(5) from the third one, the state, on.

    Raises:
        OSError: the process has ended.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
    except OSError:  # it has ended
        pass
    return found
