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

from pkg.localcluster.processes.shim import tree

IDENTITY: Final = "CONTAINER_ID"
"""The variable with the name of one start of a container."""
_CLEAN_PASSES: Final = 2
_PAUSE: Final = 0.005


def kill(identity: str, timeout: float = 5) -> None:
    """Kill the processes of a container, including those that they start meanwhile; an empty identity has none."""
    deadline = time.monotonic() + timeout
    clean = 0 if identity else _CLEAN_PASSES
    while clean < _CLEAN_PASSES and time.monotonic() < deadline:
        clean = 0 if _kill_once(identity) else clean + 1
        time.sleep(_PAUSE)


def _kill_once(identity: str) -> bool:
    """Kill the processes that are found in one pass; return True if another process may be left."""
    left = False
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            found = _has(pid, identity)
            if found:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended, or belongs to another user
            continue
        left = left or found is not False
    return left


def _has(pid: int, identity: str) -> bool | None:
    """Return whether a process has an identity, or None while a program is loaded: its environment is empty then."""
    environment = _environment(pid)
    if not environment:
        if _is_loading(pid):
            return None
        environment = _environment(pid)  # the program was loaded meanwhile, or there is none
    return f"{IDENTITY}={identity}".encode() in environment.split(b"\0")


def _is_loading(pid: int) -> bool:
    fields = tree.stat(pid)
    state, memory, end_of_environment = fields[0], fields[20], fields[48]
    ends = state == b"Z" or memory == b"0"
    return not ends and end_of_environment == b"0"


def _environment(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
