# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Free ports on loopback, reserved until their servers listen."""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from controller_runtime.envtest.files import private_directory

HOST: Final = "127.0.0.1"
_RANGE: Final = (20000, 32000)  # below the ephemeral ports of outgoing connections
_RESERVED_SECONDS: Final = 120.0  # a server that has not listened by then has failed to start


def free_ports(
    count: int, *, choose: random.Random | None = None, reservations: Path | None = None
) -> list[int]:
    """Return ``count`` different free ports, and reserve them for two minutes.

    They are chosen at random below the ephemeral range, so that no outgoing connection takes a port before a server
    listens on it. During the two minutes, no other call of this function returns the same port, not even in another
    process of this user. Reservations are files in ``reservations``, by default a temporary directory of this user.
    controller-runtime's ``pkg/internal/testing/addr`` works in the same way.

    Raises:
        OSError: there are not enough free ports.
    """
    choose = choose or random.SystemRandom()
    folder = private_directory(
        reservations or Path(tempfile.gettempdir()) / f"controller-runtime-ports-{os.getuid()}"
    )
    ports: list[int] = []
    with ExitStack() as sockets:
        for port in choose.sample(range(*_RANGE), k=2000):
            if len(ports) == count:
                break
            probe = sockets.enter_context(socket.socket())
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            if _reserve(folder / str(port)):
                ports.append(port)
    if len(ports) < count:
        raise OSError(f"no {count} free ports between {_RANGE[0]} and {_RANGE[1]} on {HOST}")
    return ports


def _reserve(path: Path) -> bool:
    """Create the file ``path`` and return True. If there is a valid reservation already, return False."""
    with suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime > _RESERVED_SECONDS:
            path.unlink()
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True
