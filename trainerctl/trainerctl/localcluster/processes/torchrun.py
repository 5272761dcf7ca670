# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torchrun where torch is not installed: it starts the processes of one node with torchrun's variables.

It reads the options from the command line and from PET_* variables. It has no rendezvous: the node rank is required
if there are several nodes, and processes are not started again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

OPTIONS = ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port")
FLAGS = ("m", "module", "no-python", "standalone")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the options and the command line of the script."""
    options = {
        name: environ[key] for name in OPTIONS if (key := f"PET_{name.upper().replace('-', '_')}") in environ
    }
    left = list(argv)
    while left and left[0].startswith("-"):
        name, equals, value = left.pop(0).lstrip("-").replace("_", "-").partition("=")
        if name in FLAGS:
            options[name] = "true"
        elif name in {"h", "help", "version"}:
            raise SystemExit(__doc__)
        else:
            options[name] = value if equals or not left else left.pop(0)
    if not left:
        raise SystemExit("torchrun: the script is missing")
    if "m" in options or "module" in options:
        return options, [sys.executable, "-u", "-m", *left]
    return options, left if "no-python" in options else [sys.executable, "-u", *left]


def environments(options: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the variables of each process."""
    per_node = options.get("nproc-per-node", "1")
    count = int(per_node) if per_node.isdecimal() else (os.cpu_count() or 1 if per_node == "cpu" else 1)
    nodes, rank = int(options.get("nnodes", "1").partition(":")[0]), int(options.get("node-rank", "0"))
    host, _, port = options.get("rdzv-endpoint", "").partition(":")
    shared = {
        "LOCAL_WORLD_SIZE": str(count),
        "WORLD_SIZE": str(nodes * count),
        "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": str(nodes),
        "MASTER_ADDR": options.get("master-addr") or host or "127.0.0.1",
        "MASTER_PORT": options.get("master-port") or port or "29500",
    }
    return [{**shared, "LOCAL_RANK": str(each), "RANK": str(rank * count + each)} for each in range(count)]


def main() -> int:
    """Run the processes and return 0 if all succeed. When one fails, kill the others and return its exit code."""
    options, command = parse(sys.argv[1:], os.environ)
    print("torchrun: torch is not installed; a stand-in starts the processes", file=sys.stderr)
    started = [subprocess.Popen(command, env={**os.environ, **each}) for each in environments(options)]

    def end(number: int, frame: object) -> None:
        for process in started:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    running = list(started)
    while running:
        time.sleep(0.05)
        running = [process for process in started if process.poll() is None]
        failed = [process.returncode for process in started if process.poll()]
        if failed:
            for process in running:
                process.kill()
            return int(failed[0] if failed[0] > 0 else 128 - failed[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
