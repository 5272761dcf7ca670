# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Handles SIGINT, SIGTERM and SIGHUP without a traceback: the exit code is 128 plus the signal's number.

This module imports as little as possible. A signal that arrives before the handlers are installed causes a traceback.
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
    """Ends the process when a signal arrives. If ``cancel`` is set, calls it instead.

    A command that has something to clean up sets ``cancel``.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        """The number of the first signal that cancelled the command."""
        self.cancel: Callable[[], object] | None = None

    def install(self) -> None:
        """Install the handlers. A signal that the parent process ignores stays ignored, for example with ``nohup``."""
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Ignore the signals from now on. Call this when the work is done: a signal must not change the exit code."""
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.cancel is None:
            os._exit(128 + number)
        self.received = self.received or number
        self.cancel()
