# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The output of a command, on a terminal and in a pipe.

Text from files and servers is printed as it is: markup and emoji codes in it have no meaning, and control characters,
among them escape sequences, are shown as escapes.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import rich.console
from controller_runtime.apis.machinery.base import JSON
from rich.cells import cell_len, set_cell_size
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pkg.offline import yamljson
from pkg.offline.text import printable, printable_line

_GAP: Final = 2

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Console(rich.console.Console):
    """A console for text from files and servers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def say(self, *parts: Part) -> None:
        """Print a line of any length; it is never wrapped."""
        self.print(Text.assemble(*parts), soft_wrap=True)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """Print a table. On a terminal the last column is cut to the width; elsewhere nothing is."""
        lines = columns(head, rows, right=right)
        for text in lines:
            if self.is_terminal:
                text.truncate(self.width, overflow="ellipsis")
            self.print(text, soft_wrap=True)

    def write(self, output: str, data: JSON) -> None:
        """Write ``data`` as ``json`` or as ``yaml``."""
        (self.write_json if output == "json" else self.write_yaml)(data)

    def write_json(self, data: JSON) -> None:
        """Write ``data`` as JSON."""
        self.file.write(yamljson.dump_json(data, ascii_only=not self._has_unicode))

    def write_yaml(self, data: JSON) -> None:
        """Write ``data`` as a YAML document."""
        self.file.write(yamljson.dump(data, ascii_only=not self._has_unicode))

    @property
    def _has_unicode(self) -> bool:
        return (getattr(self.file, "encoding", None) or "utf-8").lower().startswith("utf")

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, without control characters in the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise the caught error; rich would end the process."""
        raise BrokenPipeError(errno.EPIPE, "the reader has closed the pipe")


def columns(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> Iterator[Text]:
    """Yield the lines of a table, the head first; the last column is not padded."""
    cells = [[printable_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        line = ""
        for name, cell, width in zip(head, row, widths, strict=True):
            padded = " " * (width - cell_len(cell)) + cell if name in right else set_cell_size(cell, width)
            line += padded + " " * _GAP
        yield Text(line.rstrip(), style="bold" if number == 0 else "")
