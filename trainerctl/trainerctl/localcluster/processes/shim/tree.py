# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a container: the shim's descendants, and all processes with the container's identity.

When the parent of a descendant ends, the shim becomes the parent, so the shim can always find its descendants. Some
processes are not descendants: daemons that the container's hooks started, and processes of a shim that was killed. We
find them by the identity in their environment. For this, we search all processes of the machine: a search of the tree
can miss a process whose parent ends during the search.
"""

import ctypes
import os
import signal
import time
from typing import Final

from trainerctl.localcluster.processes.shim import IDENTITY

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_libc = ctypes.CDLL(None)
_CLEAN_PASSES: Final = 2
_PAUSE: Final = 0.005
_LOAD_PAUSE: Final = 0.0005


def adopt_orphans() -> None:
    """Make this process the new parent of each descendant whose parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. If the parent has already ended, kill this process now."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def descendants() -> list[int]:
    """Return the PIDs of the descendants of this process."""
    found: list[int] = []
    left = [os.getpid()]
    while left:
        for child in _children(left.pop()):
            found.append(child)
            left.append(child)
    return found


def reap(main: int) -> int | None:
    """Collect the children that have ended. If ``main`` is one of them, return its wait status."""
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


def kill_descendants(timeout: float = 10) -> None:
    """Kill all descendants and collect them. Descendants that start during this call are killed too."""
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
    """Return when a process started, in clock ticks since the machine booted.

    Raises:
        OSError: the process has ended.
    """
    return int(stat(pid)[19])


def stat(pid: int) -> list[bytes]:
    """Return the fields of proc_pid_stat(5), beginning with the third field, the state.

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


def kill_marked(identity: str, timeout: float = 5) -> None:
    """Kill the processes with an identity. Processes that they start during this call are killed too."""
    deadline = time.monotonic() + timeout
    clean = 0
    while clean < _CLEAN_PASSES and time.monotonic() < deadline:
        clean = 0 if _kill_once(identity, deadline) else clean + 1
        time.sleep(_PAUSE)


def _kill_once(identity: str, deadline: float) -> bool:
    """Search once for processes with the identity and kill them. Return True if there were any."""
    any_found = False
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if _has(pid, identity, deadline):
                os.kill(pid, signal.SIGKILL)
                any_found = True
        except OSError:  # it has ended, or belongs to another user
            continue
    return any_found


def _has(pid: int, identity: str, deadline: float) -> bool:
    """Return True if a process has an identity.

    While a process loads a program, its environment is empty, so this call waits until the program is loaded.
    """
    while not (environment := _environment(pid)) and _is_loading(pid) and time.monotonic() < deadline:
        time.sleep(_LOAD_PAUSE)
    environment = environment or _environment(pid)  # the program may have been loaded since the first read
    return f"{IDENTITY}={identity}".encode() in environment.split(b"\0")


def _is_loading(pid: int) -> bool:
    fields = stat(pid)
    state, memory, end_of_environment = fields[0], fields[20], fields[48]
    ends = state == b"Z" or memory == b"0"
    return not ends and end_of_environment == b"0"


def _environment(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
