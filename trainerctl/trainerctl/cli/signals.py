# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP from the first line of a program on: no traceback, exit code 128 plus the signal's number.

Imports as little as possible: until it is in force, a signal ends in a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Ends the process at once, or while ``cancel`` is set, cancels a command that has something to clean up."""

    def __init__(self) -> None:
        self.received: int | None = None
        """The number of the signal that cancelled the command."""
        self.cancel: Callable[[], object] | None = None

    def install(self) -> None:
        """Handle the signals, except those that the parent process set to be ignored, as ``nohup`` does."""
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Ignore the signals from now on: the work is done, and the exit code is decided."""
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.cancel is None:
            os._exit(128 + number)
        self.received = self.received or number
        self.cancel()
