# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How long work tells a person where it stands.

Whoever builds or starts something takes a `Progress` and knows nothing of terminals. A command-line tool
passes one that draws bars; tests pass `PlainProgress`, which writes a line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TextIO


class Progress(Protocol):
    """Receives the course of named tasks; calls for one task come in order, and never after its `finish`."""

    def start(self, task: str, total: int | None = None) -> None:
        """Open a task; without ``total`` nobody knows yet how long it is."""
        ...

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        """Say that ``done`` of ``total`` steps are behind us and what is being worked at."""
        ...

    def finish(self, task: str, detail: str = "") -> None:
        """Close a task that went well."""
        ...

    def fail(self, task: str, detail: str = "") -> None:
        """Close a task that did not."""
        ...


class SilentProgress:
    """Says nothing."""

    def start(self, task: str, total: int | None = None) -> None:
        """Ignore the call."""

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        """Ignore the call."""

    def finish(self, task: str, detail: str = "") -> None:
        """Ignore the call."""

    def fail(self, task: str, detail: str = "") -> None:
        """Ignore the call."""


class PlainProgress:
    """Writes one line when a task ends, and one every ``every`` seconds while it takes long."""

    def __init__(
        self, stream: TextIO, *, every: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._started: dict[str, float] = {}
        self._spoke: dict[str, float] = {}

    def start(self, task: str, total: int | None = None) -> None:
        """Remember when the task began."""
        self._started[task] = self._spoke[task] = self._clock()

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        """Write where the task stands, if it has been silent for long."""
        now = self._clock()
        if now - self._spoke.get(task, now) < self._every:
            return
        self._spoke[task] = now
        self._write(task, f"{done}/{total} {detail}".rstrip() if total else detail)

    def finish(self, task: str, detail: str = "") -> None:
        """Write how long the task took."""
        self._write(task, detail or "done")
        self._started.pop(task, None)

    def fail(self, task: str, detail: str = "") -> None:
        """Write why the task ended."""
        self._write(task, f"failed: {detail}" if detail else "failed")
        self._started.pop(task, None)

    def _write(self, task: str, text: str) -> None:
        took = self._clock() - self._started.get(task, self._clock())
        self._stream.write(f"{task}: {text} ({took:.1f} s)\n")
        self._stream.flush()
