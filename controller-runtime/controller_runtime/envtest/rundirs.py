# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The directories of environments: made for this process, and removed when their process has exited."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller_runtime.envtest import pidfile
from controller_runtime.envtest.files import private_directory

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 a private directory, mode 0700, is created in it
_OWNER: Final = "owner"
_KEEP_LOGS: Final = 86_400.0


def make() -> list[Path]:
    """Create a directory for certificates and logs, and one for the data, in memory if possible.

    The directories are one and the same without a file system in memory. Those of processes that have exited are
    removed.
    """
    roots = [_root(Path(tempfile.gettempdir()))]
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
        roots.append(_root(_MEMORY))
    for root in roots:
        sweep(root, keep=_KEEP_LOGS if root is roots[0] else 60)
    made: list[Path] = []
    for root in roots:
        directory = Path(tempfile.mkdtemp(prefix="run-", dir=root))
        command = pidfile.command_line(os.getpid()).split(" ")
        pidfile.write(directory, pidfile.identify(_OWNER, os.getpid(), command))
        made.append(directory)
    return made


def sweep(root: Path, *, keep: float) -> None:
    """End the processes of environments whose owner has exited, and remove their directories.

    A directory is kept for ``keep`` seconds: for its logs, and because its owner may not have signed it yet.
    """
    for directory in root.glob("run-*"):
        with suppress(FileNotFoundError):  # another process has removed it meanwhile
            if any(each.component == _OWNER and each.alive() for each in pidfile.read(directory)):
                continue
            pidfile.end_leftovers(directory / "pids")
            if time.time() - directory.stat().st_mtime > keep:
                shutil.rmtree(directory, ignore_errors=True)


def _root(base: Path) -> Path:
    return private_directory(base / f"ctrl-envtest-{os.getuid()}")
