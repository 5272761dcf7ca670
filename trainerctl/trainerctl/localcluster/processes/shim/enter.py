# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command beside a container's process: with its mounts, host name and root folder."""

import ctypes
import os
from typing import Any, Final, NoReturn

from trainerctl.localcluster.processes.shim import tree

_SPACES: Final = ("user", "mnt", "uts")
_libc = ctypes.CDLL(None, use_errno=True)


def execute(pid: int, began: int, plan: dict[str, Any]) -> NoReturn:
    """Replace this process by the plan's command, beside the process that `tree.start_time` knows by ``began``.

    Raises:
        OSError: the container has ended, or the command cannot be run.
    """
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in _SPACES if not _is_shared(pid, name)]
    root = os.open(f"/proc/{pid}/root", os.O_PATH)
    if tree.start_time(pid) != began:  # another process has the pid now
        raise ProcessLookupError(f"process {pid} has ended")
    for space in spaces:
        if _libc.setns(space, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"namespaces of {pid} cannot be entered: {os.strerror(number)}")
    if spaces:
        os.fchdir(root)
        os.chroot(".")
    os.chdir(plan["cwd"])
    os.dup2(1, 2)
    os.execvpe(plan["argv"][0], plan["argv"], plan["env"])


def _is_shared(pid: int, name: str) -> bool:
    return os.stat(f"/proc/{pid}/ns/{name}").st_ino == os.stat(f"/proc/self/ns/{name}").st_ino
