# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Report the progress of long-running work.

Code that builds or starts something takes a `Progress` and is independent of terminals. A command-line tool passes a
`Progress` that draws bars; tests pass `PlainProgress`, which occasionally writes a line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from controller_runtime.machinery.printable import printable_line


class Progress:
    """Receives the progress of named tasks; its own methods do nothing.

    Calls for one task are in order, and no call follows the task's `finish`.
    """

    def start(self, task: str) -> None:
        """Start a task."""

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        """Report that ``done`` of ``total`` steps are complete; ``detail`` is the current step."""

    def finish(self, task: str, detail: str = "") -> None:
        """End a task that succeeded."""

    def fail(self, task: str, detail: str = "") -> None:
        """End a task that failed."""


class PlainProgress(Progress):
    """Writes a line when a task ends, and every ``every`` seconds while it runs."""

    def __init__(
        self, stream: TextIO, *, every: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._started: dict[str, float] = {}
        self._spoke: dict[str, float] = {}

    def start(self, task: str) -> None:
        """Record the task's start time."""
        self._started[task] = self._spoke[task] = self._clock()

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        """Write the task's progress if its last line is old enough."""
        now = self._clock()
        if now - self._spoke.get(task, now) < self._every:
            return
        self._spoke[task] = now
        self._write(task, f"{done}/{total} {detail}".rstrip() if total else detail)

    def finish(self, task: str, detail: str = "") -> None:
        """Write the task's duration."""
        self._write(task, detail or "done")
        self._started.pop(task, None)

    def fail(self, task: str, detail: str = "") -> None:
        """Write why the task failed."""
        self._write(task, f"failed: {detail}" if detail else "failed")
        self._started.pop(task, None)

    def _write(self, task: str, text: str) -> None:
        took = self._clock() - self._started.get(task, self._clock())
        self._stream.write(f"{task}: {printable_line(text)} ({took:.1f} s)\n")
        self._stream.flush()
