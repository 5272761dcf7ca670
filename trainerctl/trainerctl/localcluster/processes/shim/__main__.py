# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl.localcluster.processes.shim``: run one container.

The first line of standard input is the plan. Each further line is the name of a signal to send to the container. The
end of standard input means that the kubelet has ended; the container is then killed. Each line of standard output is a
report: ``started`` with the PID and the start time, ``failed`` with a message, or ``ended`` with the exit code. With
``--enter PID BEGAN``, run a command in the container of this process. With ``--check``, try to make a mount.
"""

import json
import os
import sys

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
    plan = json.loads(sys.stdin.buffer.readline())
    if argv[:1] == ["--enter"]:
        mounts.enter(int(argv[1]), int(argv[2]))
        os.chdir(plan["cwd"])
        os.dup2(1, 2)
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])
    return supervise.run(plan)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
