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
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None)

IDENTITY: Final = "CONTAINER_ID"
"""The variable by which the processes of a container are found after its shim was killed."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Let this process be killed when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants() -> list[int]:
    """Return the processes below this one."""
    found: list[int] = []
    left = [os.getpid()]
    while left:
        for child in _children(left.pop()):
            found.append(child)
            left.append(child)
    return found


def memory() -> int:
    """Return the bytes of memory that the descendants do not share with files."""
    return sum(map(_memory, descendants()))


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
            except ProcessLookupError:
                continue
        reap(0)
        time.sleep(0.002)


def kill_marked(identity: str) -> None:
    """Kill the descendants that have the identity of a container in their environment."""
    for pid in descendants():
        try:
            if is_marked(pid, identity):
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue


def is_marked(pid: int, identity: str) -> bool:
    """Return True if a process started with the identity of a container in its environment.

    Raises:
        OSError: the process has ended.
    """
    with open(f"/proc/{pid}/environ", "rb") as file:
        return f"{IDENTITY}={identity}".encode() in file.read().split(b"\0")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
    except OSError:  # it has ended
        pass
    return found


def _memory(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:  # it has ended
        return 0
    return (int(resident) - int(shared)) * _PAGE
