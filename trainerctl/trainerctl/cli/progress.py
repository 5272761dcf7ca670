# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Shows progress. On a terminal each task has a bar or a spinner; elsewhere progress is printed as plain lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from controller_runtime.envtest import PlainProgress, Progress
from controller_runtime.machinery.printable import printable_line
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars
from rich.progress import Task as BarTask
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from trainerctl.cli.terminal import Console

_DONE: Final = "[green]✓[/]"
_FAILED: Final = "[red]✗[/]"
_LONGEST: Final = 200
"""A detail is cut after this many characters, and the line at the edge of the terminal."""
_NARROW: Final = 60
"""A terminal with fewer columns has no room for the elapsed time and a long bar."""


class _Count(MofNCompleteColumn):
    """Shows ``done/total`` for running tasks that have a total."""

    def render(self, task: BarTask) -> Text:
        return super().render(task) if task.total and not task.finished else Text("")


class _Percent(TaskProgressColumn):
    """Shows the percentage of tasks that have a total."""

    def render(self, task: BarTask) -> Text:
        return super().render(task) if task.total else Text("")


class _Bar(BarColumn):
    """Draws a bar for running tasks that have a total. Without colours, other bars would look like full ones."""

    def render(self, task: BarTask) -> ProgressBar | Text:  # type: ignore[override]  # a column may render anything
        return super().render(task) if task.total and not task.fields["mark"].strip() else Text("")


class RichProgress(Progress):
    """Draws tasks. The line of a task that has ended stays, with the time that the task took."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def start(self, task: str) -> None:
        self._tasks[task] = self._bars.add_task(task, total=None, detail="", mark=" ")

    def update(self, task: str, *, done: int = 0, total: int | None = None, detail: str = "") -> None:
        if task not in self._tasks:
            self.start(task)
        self._bars.update(
            self._tasks[task], completed=done, total=total, detail=escape(printable_line(detail[:_LONGEST]))
        )

    def finish(self, task: str, detail: str = "") -> None:
        self._end(task, detail, _DONE)

    def fail(self, task: str, detail: str = "") -> None:
        self._end(task, "" if len(detail) > 60 else detail, _FAILED)

    def _end(self, task: str, detail: str, mark: str) -> None:
        if task in self._tasks:
            number = self._tasks[task]
            self._bars.update(number, total=1, completed=1, detail=escape(printable_line(detail)), mark=mark)
            self._bars.stop_task(number)


@contextmanager
def progress_on(console: Console, *, percent: bool = False) -> Iterator[Progress]:
    """Yield a Progress for ``console``: bars on a terminal, plain lines elsewhere.

    With ``percent``, a bar shows its percentage instead of a count, and disappears at the end.
    """
    if not console.is_terminal:
        yield PlainProgress(sys.stderr if console.stderr else sys.stdout)
        return
    # The detail is cut first, then the name, so that the marks and the percentage stay.
    is_narrow = console.width < _NARROW
    widest = max(8, (console.width - (26 if is_narrow else 40)) // 2) if percent else console.width // 2
    columns: list[ProgressColumn] = [
        *([] if percent else [TextColumn("{task.fields[mark]}")]),
        SpinnerColumn(finished_text=""),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=widest)),
        *([] if is_narrow and not percent else [_Bar(bar_width=8 if is_narrow else 16)]),
        _Percent() if percent else _Count(),
        *([] if is_narrow else [TimeElapsedColumn()]),
        TextColumn("[dim]{task.fields[detail]}", table_column=Column(no_wrap=True, ratio=1)),
    ]
    with Bars(*columns, console=console, transient=percent, expand=True) as bars:
        yield RichProgress(bars)
