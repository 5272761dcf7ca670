# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl.localcluster.processes.shim``: run one container.

The first line of standard input is the plan. Each further line is the name of a signal to send to the container. The
end of standard input means that the kubelet has ended; the container is then killed. Each line of standard output is a
report: ``started`` with the PID and the start time, ``failed`` with a message, or ``ended`` with the exit code. With
``--enter PID BEGAN``, run a command in the container of this process. With ``--exec PID BEGAN FD``, do the same, but
read the plan from this file descriptor: the standard streams, which may be a terminal, are those of the command. With
``--check``, try to make a mount.
"""

import fcntl
import json
import os
import sys
import termios

from trainerctl.localcluster.processes.shim import mounts, supervise


def main(argv: list[str]) -> int:
    """Run a container, a command in a running container, or the check. Return the exit code."""
    if argv[:1] == ["--check"]:
        try:
            mounts.unshare()
        except OSError as error:
            print(error)
            return 1
        return 0
    if argv[:1] == ["--exec"]:
        return _execute(*map(int, argv[1:]))
    plan = json.loads(sys.stdin.buffer.readline())
    if argv[:1] == ["--enter"]:
        mounts.enter(int(argv[1]), int(argv[2]))
        os.chdir(plan["cwd"])
        os.dup2(1, 2)
        supervise.become(plan)
    return supervise.run(plan)


def _execute(pid: int, began: int, file: int) -> int:
    """Become the command of the plan in the container of a process. Return an exit code if this fails."""
    with open(file, "rb") as opened:
        plan = json.load(opened)
    try:
        mounts.enter(pid, began)
        os.chdir(plan["cwd"])
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        supervise.become(plan)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        os.write(2, f"exec {plan['argv'][0]!r}: {problem}\n".encode(errors="replace"))
        return 127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
