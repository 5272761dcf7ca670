# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Locks between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio


@asynccontextmanager
async def file_lock(path: Path, *, waiting: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold the lock ``path`` for the body; it is released if the process dies.

    Waiting can be cancelled. ``waiting`` is called once if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        notified = False
        while not _try_lock(descriptor):
            if waiting is not None and not notified:
                notified = True
                waiting()
            await anyio.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
