# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ends the process even if a thread does not end: the event loop and the interpreter would wait for the thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LAST_MOMENTS: Final = 5.0
"""Maximum number of seconds from the end of the manager to the end of the process."""


class ExitDeadline:
    """Ends the process ``seconds`` after :meth:`within` is left, unless all threads have ended by then.

    Call :meth:`loop_ended` when the event loop has ended. ``report`` logs the manager's error, if any, and returns the
    exit code.
    """

    def __init__(
        self,
        report: Callable[[BaseException | None], int],
        *,
        seconds: float = LAST_MOMENTS,
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        self._report = report
        self._exit_now = exit_now
        self._error: BaseException | None = None
        self._left: list[threading.Thread] | None = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    @contextmanager
    def within(self) -> Iterator[None]:
        """Start the timer when the block is left."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._timer.start()

    def loop_ended(self) -> None:
        """Stop the timer if there are no threads for which the interpreter would wait."""
        main = threading.main_thread()
        self._left = [each for each in threading.enumerate() if not each.daemon and each is not main]
        if not self._left:
            self._timer.cancel()

    def _end(self) -> None:
        if self._left is None or any(thread.is_alive() for thread in self._left):
            self._exit_now(self._report(self._error))
