# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handles SIGINT, SIGTERM and SIGHUP without a traceback: the exit code is 128 plus the signal's number.

This module imports as little as possible: until the handlers are installed, a signal ends in a traceback.
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
    """Ends the process at a signal, or calls ``cancel`` if it is set.

    A command sets ``cancel`` if it has something to clean up.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        """The number of the first signal that cancelled the command."""
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
