# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The output of a command, on a terminal and in a pipe.

Text from files and servers is not interpreted. Markup and emoji codes have no meaning, and control characters, among
them escape sequences and line breaks, are shown as escapes.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import rich.console
from controller_runtime.machinery import JSON, yaml
from controller_runtime.machinery.printable import printable, printable_json, printable_line
from rich.cells import cell_len, set_cell_size
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_GAP: Final = 2
_READABLE: Final = 12
"""The width, in cells, that a column keeps in a narrow terminal."""

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Console(rich.console.Console):
    """A console for text from files and servers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def say(self, *parts: Part) -> None:
        """Print one line of any length; it is never wrapped, and a line break in a part is shown as an escape."""
        line = Text()
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            line.append(printable_line(text), style)
        self.print(line, soft_wrap=True)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """Print a table. On a terminal its lines are cut to the width of the terminal."""
        for text in columns(head, rows, right=right, room=self.width if self.is_terminal else None):
            self.print(text, soft_wrap=True)

    def write(self, output: str, data: JSON) -> None:
        """Write ``data`` as ``json`` or as ``yaml``."""
        (self.write_json if output == "json" else self.write_yaml)(data)

    def write_json(self, data: JSON) -> None:
        self.file.write(json_text(data, ascii_only=not self._has_unicode))

    def write_yaml(self, data: JSON) -> None:
        """Write ``data`` as a YAML document."""
        self.file.write(yaml_text(data, ascii_only=not self._has_unicode))

    @property
    def _has_unicode(self) -> bool:
        return (getattr(self.file, "encoding", None) or "utf-8").lower().startswith("utf")

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, without control characters in the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError; rich would end the process."""
        raise BrokenPipeError(errno.EPIPE, "the reader has closed the pipe")


def json_text(data: JSON, *, ascii_only: bool = False) -> str:
    """Return JSON with line breaks; characters that must not reach a terminal are escapes."""
    return printable_json(json.dumps(data, indent=2, ensure_ascii=ascii_only)) + "\n"


def yaml_text(data: JSON, *, ascii_only: bool = False) -> str:
    """Return YAML; if a character of it must not reach a terminal, all characters beyond ASCII are escapes."""
    text = yaml.dump(data, ascii_only=ascii_only)
    return text if printable(text) == text else yaml.dump(data, ascii_only=True)


def columns(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    room: int | None = None,
) -> Iterator[Text]:
    """Yield the lines of a table, the head first; the last column is not padded.

    To fit into ``room`` cells, the widest column except the last loses the middle of its texts; if that is not
    enough, each line loses its end.
    """
    cells = [[printable_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    if room is not None:
        _fit(widths, room)
    for number, row in enumerate(cells):
        line = ""
        for name, whole, width in zip(head, row, widths, strict=True):
            cell = _shortened(whole, width)
            padded = " " * (width - cell_len(cell)) + cell if name in right else set_cell_size(cell, width)
            line += padded + " " * _GAP
        text = Text(line.rstrip(), style="bold" if number == 0 else "")
        if room is not None:
            text.truncate(room, overflow="ellipsis")
        yield text


def _fit(widths: list[int], room: int) -> None:
    """Narrow the widest column except the last, so that the last one keeps a readable part."""
    *others, last = widths
    excess = sum(others) + _GAP * len(others) + min(last, _READABLE) - room
    if others and excess > 0:
        widest = others.index(max(others))
        widths[widest] = max(min(widths[widest], _READABLE), widths[widest] - excess)


def _shortened(cell: str, width: int) -> str:
    """Return a cell without its middle: names often differ only at their beginning or end."""
    if cell_len(cell) <= width:
        return cell
    kept = width - 1
    end = cell[-(kept // 2) :] if kept > 1 else ""
    return f"{set_cell_size(cell, kept - cell_len(end)).rstrip()}…{end}"
