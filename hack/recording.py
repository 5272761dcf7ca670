# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run commands of trainerctl, and draw a picture in which each line of their output appears at its time.

``python -m hack.recording docs/demo.svg "trainerctl demo"``. docs/why.svg needs a cluster in KUBECONFIG in
which a TrainJob waits for a Secret: ``python -m hack.recording docs/why.svg "trainerctl get" "trainerctl why llama"``.
Recorders of terminals draw frames; this picture has each line once. It loads no resource and shows the whole text
without animation.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
from rich.terminal_theme import MONOKAI
from rich.text import Text
from trainerctl.cli import execution
from trainerctl.cli.parser import parse
from trainerctl.cli.terminal import Console

WIDTH: Final = 110

_LINE: Final = re.compile(r'clip-path="url\(#(\S+)-line-(\d+)\)"')
_FONT: Final = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
_STEP: Final = re.compile(r"^[✓·] .*?([\d.]+) s\s*$")
_HIDDEN: Final = "@keyframes hidden { from, to { visibility: hidden } }\n"


class Screencast:
    """The output and the time of each line."""

    def __init__(self, title: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self.console = Console(
            file=_Lines(self._line), record=True, width=WIDTH, force_terminal=False, legacy_windows=False
        )
        self._clock = clock
        self._began = clock()
        self.lines: list[tuple[float, str]] = []

    def _line(self, text: str) -> None:
        self.lines.append((self._clock() - self._began, text))

    def times(self) -> list[float]:
        """Return the time of each line; for a milestone of the TrainJob, the time at which it was reached."""
        title = next((at for at, text in self.lines if text.startswith("TrainJob ")), 0.0)
        found = [title + float(step[1]) if (step := _STEP.match(text)) else at for at, text in self.lines]
        # A heading appears no later than the line below it.
        for above in range(len(found) - 2, -1, -1):
            found[above] = min(found[above], found[above + 1])
        return found

    def svg(self) -> str:
        """Return the picture."""
        drawn = _FONT.sub("", self.console.export_svg(title=self._title, theme=MONOKAI, unique_id="demo"))
        times = self.times()

        def appears(match: re.Match[str]) -> str:
            number = int(match[2])
            at = times[number] if number < len(times) else 0.0
            return f'{match[0]} style="animation: hidden {at:.2f}s"' if at else match[0]

        head, mark, body = drawn.partition("</style>")
        # The title bar comes first; it is not a line of the text.
        return head + _HIDDEN + mark + _LINE.sub(appears, body)


class _Lines(io.StringIO):
    """A file that passes each complete line to a function."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take
        self._pending = ""

    def write(self, text: str, /) -> int:
        *whole, self._pending = (self._pending + text).split("\n")
        for line in whole:
            self._take(line)
        return len(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the commands, one after another, and write the picture into the file that is named first."""
    file, *commands = sys.argv[1:] if argv is None else argv
    screencast = Screencast(commands[-1])
    # Some commands write to this file.
    stdout, sys.stdout = sys.stdout, _Lines(lambda line: screencast.console.print(Text(line, style="dim")))
    try:
        for command in commands:
            screencast.console.print(Text.assemble(("$ ", "green"), (command, "bold")))
            parsed = parse(shlex.split(command)[1:])
            anyio.run(execution.function(parsed.function), parsed, screencast.console, screencast.console)
    finally:
        sys.stdout = stdout
    for _, line in screencast.lines:
        sys.stdout.write(f"{line}\n")
    Path(file).write_text(screencast.svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
