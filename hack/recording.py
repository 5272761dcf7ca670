# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run commands of trainerctl, and draw their output: ``python -m hack.recording docs/demo.svg "trainerctl demo"``.

docs/why.svg needs a cluster in KUBECONFIG in which a TrainJob waits for a Secret, and the commands ``trainerctl get``
and ``trainerctl why llama``. Recorders of terminals make pictures that load fonts, and do not use trainerctl's console.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import anyio
from rich.terminal_theme import MONOKAI
from rich.text import Text
from trainerctl.cli import execution
from trainerctl.cli.parser import parse
from trainerctl.cli.terminal import Console


def picture(console: Console, title: str) -> str:
    """Return what a console has printed as an SVG that loads no font."""
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id="demo")
    return re.sub(r"@font-face\s*\{.*?\}\s*", "", drawn, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the commands, one after another, and draw them into the file that is named first."""
    file, *commands = sys.argv[1:] if argv is None else argv
    console = Console(file=sys.stderr, record=True, width=110, force_terminal=False, legacy_windows=False)
    for command in commands:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        parsed = parse(shlex.split(command)[1:])
        with redirect_stdout(io.StringIO()) as printed:  # some commands do not use the console
            anyio.run(execution.function(parsed.function), parsed, console, console)
        console.print(Text(printed.getvalue(), style="dim"), end="")
    Path(file).write_text(picture(console, commands[-1]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
