# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Returns free memory to the kernel.

The C library keeps freed memory for later: after large bodies and answers have come and gone, 20 MiB and more
between the memory in use. It is returned once the memory in use has grown much since the start; otherwise the
process's memory does not change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

_PERIOD: Final = 1.0
"""Seconds between two checks of the memory in use."""
_GROWTH: Final = 8 << 20
_SHARE: Final = 8
"""Memory is checked again when it has grown by that many bytes, and by this part of the memory in use."""
_STATM: Final = Path("/proc/self/statm")


def resident() -> int:
    """Return the bytes of memory in use, 0 where the system does not report them."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def give_back() -> None:
    """Return free memory to the kernel; the interpreter is not held. Only glibc can."""
    import ctypes  # not before memory has grown

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Trimmer:
    """A runnable of the manager: calls ``give_back`` each time the memory in use has grown, at most once a second."""

    def __init__(
        self, resident: Callable[[], int] = resident, give_back: Callable[[], None] = give_back
    ) -> None:
        self._resident = resident
        self._give_back = give_back

    def need_leader_election(self) -> bool:
        """Return False: a standby answers reviews, too."""
        return False

    async def start(self) -> None:
        """Check the memory in use until cancelled."""
        used = self._resident()
        while True:
            now = self._resident()
            if now > used + max(_GROWTH, used // _SHARE):
                await anyio.to_thread.run_sync(self._give_back)
                now = used = self._resident()
            used = min(used, now)
            await anyio.sleep(_PERIOD)
