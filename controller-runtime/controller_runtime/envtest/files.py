# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Files that only this user can read, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio


def private_directory(path: Path) -> Path:
    """Create the directory ``path`` if it does not exist, set its mode to 0700, and return it.

    Raises:
        PermissionError: the directory, or a link in its place, belongs to another user, who could replace its files.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if {path.lstat().st_uid, path.stat().st_uid} != {os.geteuid()}:
        raise PermissionError(errno.EACCES, "the directory belongs to another user", str(path))
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes | str) -> Path:
    """Write the file ``path`` atomically and return ``path``. Its mode is 0600 from the beginning."""
    return write_atomically(path, content, mode=0o600)


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o666) -> Path:
    """Replace the file ``path`` and return ``path``. Readers see the former content or all of the new one.

    ``mode`` is the mode of the file before the umask is applied.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@asynccontextmanager
async def file_lock(path: Path, *, waiting: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold the lock ``path`` during the body. If the process dies, the lock is released.

    Waiting can be cancelled. ``waiting`` is called once if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        notified = False
        while not try_lock(descriptor):
            if waiting is not None and not notified:
                notified = True
                waiting()
            await anyio.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until its descriptor is closed; return False if another descriptor has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
