# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Called before and after the rest of the program is imported: what makes its start cheap.

structlog is loaded without rich, which it would find installed. rich prints tracebacks for people at a terminal, and
trainerctl needs it. A manager writes JSON, and would pay 45 ms of its start and 4 MiB for 100 modules it never calls.

Nothing is collected while modules load, kinds build their decoders and caches fill: it all stays, and looking
through it for garbage again and again takes a tenth of the start.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

_LOADED_AFTER: Final = 1.0
"""Seconds after the caches are full: by then the first TrainJob that waited has its JobSet."""
_AT_LAST: Final = 30.0
"""Seconds after which there are collections even if caches do not fill."""


def without(name: str, load: str) -> None:
    """Import ``load`` as if ``name`` were not installed, unless one of them is loaded already."""
    if name in sys.modules or load in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # the import system's own mark for what is not there
    try:
        importlib.import_module(load)
    finally:
        del sys.modules[name]


class Collector:
    """A runnable of the manager: once ``ready`` returned, garbage is collected, but never looked for in what was there before."""

    def __init__(self, ready: Callable[[], Awaitable[None]]) -> None:
        self._ready = ready

    def need_leader_election(self) -> bool:
        """Return False: a standby starts, too."""
        return False

    async def start(self) -> None:
        """Wait, then let collections begin."""
        with anyio.move_on_after(_AT_LAST):
            await self._ready()
            await anyio.sleep(_LOADED_AFTER)
        gc.collect()
        gc.freeze()
        gc.enable()


def loading() -> None:
    """Stop collections until `loaded`, and load structlog without rich."""
    gc.disable()
    without("rich", "structlog")


def loaded() -> None:
    """Let collections begin: modules are loaded."""
    gc.enable()
