# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The output of a command, on a terminal and in a pipe.

Text from files and servers cannot control the output. Markup and emoji codes have no effect. Control characters, such
as line breaks and the first character of an escape sequence, are shown as escapes.
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
"""In a narrow terminal, a column is not made narrower than this many cells."""

Part = str | tuple[str, str]
"""Text, or text and its style."""


class Console(rich.console.Console):
    """A console that is safe for text from files and servers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def say(self, *parts: Part) -> None:
        """Print one line of any length. It is never wrapped; a line break in a part is shown as an escape."""
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
        """Render as rich does, but replace control characters in the text by escapes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError. rich itself would end the process here."""
        raise BrokenPipeError(errno.EPIPE, "the reader has closed the pipe")


def json_text(data: JSON, *, ascii_only: bool = False) -> str:
    """Return indented JSON. Characters that must not reach a terminal are escaped."""
    return printable_json(json.dumps(data, indent=2, ensure_ascii=ascii_only)) + "\n"


def yaml_text(data: JSON, *, ascii_only: bool = False) -> str:
    """Return YAML.

    If it contains a character that must not reach a terminal, all characters beyond ASCII are escaped.
    """
    text = yaml.dump(data, ascii_only=ascii_only)
    return text if printable(text) == text else yaml.dump(data, ascii_only=True)


def columns(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    room: int | None = None,
) -> Iterator[Text]:
    """Yield the lines of a table, the head first. The last column is not padded.

    If the table is wider than ``room`` cells, texts in the widest columns (not in the last one) are shortened in the
    middle. If that is not enough, the end of each line is cut off.
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
            if text.plain.endswith("……"):
                text.right_crop(1)
        yield text


def _fit(widths: list[int], room: int) -> None:
    """Make columns narrower, the widest first, so that a part of the last column stays readable.

    The last column is not changed.
    """
    *others, last = widths
    while others and (excess := sum(others) + _GAP * len(others) + min(last, _READABLE) - room) > 0:
        widest = others.index(max(others))
        if others[widest] <= _READABLE:
            return
        next_widest = max((each for each in others if each < others[widest]), default=0)
        others[widest] = widths[widest] = max(others[widest] - excess, next_widest, _READABLE)


def _shortened(cell: str, width: int) -> str:
    """Shorten a cell in the middle, because names often differ only at their beginning or end."""
    if cell_len(cell) <= width:
        return cell
    kept = width - 1
    end = cell[-(kept // 2) :] if kept > 1 else ""
    return f"{set_cell_size(cell, kept - cell_len(end)).rstrip()}…{end}"
