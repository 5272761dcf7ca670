# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of a container wherever they are: all of them have its identity in their environment.

All processes of the machine are searched, not the tree below a shim or a kubelet: a process whose parent ends while the
tree is read may be found nowhere in it, and the daemons that a container's hooks start are not below its shim.
"""

import os
import signal
import time
from typing import Final

from trainerctl.localcluster.processes.shim import IDENTITY, tree

_CLEAN_PASSES: Final = 2
_PAUSE: Final = 0.005
_LOAD_PAUSE: Final = 0.0005


def kill(identity: str, timeout: float = 5) -> None:
    """Kill the processes of a container, including those that they start meanwhile."""
    deadline = time.monotonic() + timeout
    clean = 0
    while clean < _CLEAN_PASSES and time.monotonic() < deadline:
        clean = 0 if _kill_once(identity, deadline) else clean + 1
        time.sleep(_PAUSE)


def _kill_once(identity: str, deadline: float) -> bool:
    """Kill the processes that are found in one pass; return True if there were any."""
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
    """Return True if a process has an identity. While a program is loaded into it, its environment is empty."""
    while not (environment := _environment(pid)) and _is_loading(pid) and time.monotonic() < deadline:
        time.sleep(_LOAD_PAUSE)
    environment = environment or _environment(pid)  # it may have been loaded between the two questions
    return f"{IDENTITY}={identity}".encode() in environment.split(b"\0")


def _is_loading(pid: int) -> bool:
    fields = tree.stat(pid)
    state, memory, end_of_environment = fields[0], fields[20], fields[48]
    ends = state == b"Z" or memory == b"0"
    return not ends and end_of_environment == b"0"


def _environment(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
