# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Free ports on loopback."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

HOST: Final = "127.0.0.1"
_RANGE: Final = (20000, 32000)  # below the ephemeral ports of outgoing connections


def free_ports(count: int, *, choose: random.Random | None = None) -> list[int]:
    """Return ``count`` different ports on which no process listens now.

    They are chosen at random below the ephemeral range, so that an outgoing connection, or another cluster that
    starts at the same time, is unlikely to take one before its server does.
    """
    choose = choose or random.SystemRandom()
    found: list[int] = []
    with ExitStack() as held:
        for port in choose.sample(range(*_RANGE), k=2000):
            if len(found) == count:
                break
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise OSError(f"no {count} free ports between {_RANGE[0]} and {_RANGE[1]} on {HOST}")
    return found
