# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Draws metrics over time as SVG: one panel for each metric, because their scales differ."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller_runtime.envtest import write_atomically
from controller_runtime.machinery.printable import printable_line

from trainerctl.cli.trainerstatus import duration
from trainerctl.offline.inputfiles import InputError

PNG: Final = ".png"
_MOST_PANELS: Final = 24
_MOST_POINTS: Final = 2000
"""A line has at most this many points; the picture has fewer pixels in a row."""
_WIDTH: Final = 760
_LEFT: Final = 96
_RIGHT: Final = 24
_TOP: Final = 56
_PANEL: Final = 150
_PLOT: Final = 94
"""The height of the drawing in a panel; the name is above it, and the times are below it."""
_TICKS: Final = 5
_STEPS: Final = tuple(
    unit * each
    for unit, counts in (
        (1, (1, 2, 5, 10, 15, 30)),
        (60, (1, 2, 5, 10, 15, 30)),
        (3600, (1, 2, 3, 6, 12)),
        (86400, (1, 2, 5, 10, 25, 50)),
    )
    for each in counts
)
"""The round times between two ticks, in seconds. Longer pictures have a tick at the beginning and at the end."""
PROGRESS: Final = "progress (%)"
"""The panel with this name always reaches from 0 to 100, so that it shows how much is left."""
_COLOURS: Final = ("#1f6feb", "#1a7f37", "#bc4c00", "#8250df", "#cf222e", "#0f7b8a")

Point = tuple[float, float]
"""The seconds since the first report, and a value. Both are finite."""


def svg(title: str, subtitle: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Return the picture as SVG. Texts may contain anything; metrics without a number are left out."""
    drawn = {name: points for name, points in series.items() if points}
    shown = list(drawn.items())[:_MOST_PANELS]
    end = max((points[-1][0] for points in drawn.values()), default=0.0)
    height = _TOP + _PANEL * max(1, len(shown)) + 16
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, size=16, weight="bold"),
        _text(_LEFT, 44, subtitle, fill="#57606a"),
    ]
    if not shown:
        lines.append(_text(_LEFT, _TOP + 40, "no metric has a number yet", fill="#57606a"))
    for number, (name, points) in enumerate(shown):
        colour = _COLOURS[number % len(_COLOURS)]
        lines += _panel(_TOP + number * _PANEL, name, points, end, colour)
    if len(drawn) > len(shown):
        lines.append(_text(_LEFT, height - 6, f"{len(drawn) - len(shown)} more metrics", fill="#57606a"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(top: float, name: str, points: Sequence[Point], end: float, colour: str) -> Iterator[str]:
    values = [value for _, value in points]
    low, high = (0.0, 100.0) if name == PROGRESS else (min(values), max(values))
    # Halves, because the difference of two large numbers may be infinite.
    half = high / 2 - low / 2
    bottom, right = top + 24 + _PLOT, _WIDTH - _RIGHT

    def place(point: Point) -> tuple[float, float]:
        share = (point[1] / 2 - low / 2) / half if half else 0.5
        return _LEFT + (right - _LEFT) * (point[0] / end if end else 0), bottom - _PLOT * share

    yield _text(_LEFT, top + 16, name, weight="bold")
    yield _text(right, top + 16, _number(values[-1]), anchor="end", fill=colour, weight="bold")
    for share in (0.0, 0.5, 1.0) if half else (0.5,):
        y = bottom - _PLOT * share
        value = 2 * (low / 2 + half * share)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#d0d7de"/>'
        yield _text(_LEFT - 8, y + 4, _number(value), anchor="end", fill="#57606a")
    step = next((each for each in _STEPS if end / each <= _TICKS), math.ceil(end))
    for tick in range(math.floor(end / step) + 1 if end else 1):
        x = place((tick * step, 0.0))[0]
        anchor = "start" if tick == 0 else "end" if x > right - 20 else "middle"
        yield _text(x, bottom + 16, duration(tick * step), anchor=anchor, fill="#57606a", size=11)
    places = [place(point) for point in points[:: math.ceil(len(points) / _MOST_POINTS)]]
    last = place(points[-1])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*places, last])
    yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"/>'
    yield f'<circle cx="{last[0]:.1f}" cy="{last[1]:.1f}" r="3" fill="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    fill: str = "#1f2328",
) -> str:
    # Control characters are not allowed in XML, not even as references.
    shown = html.escape(printable_line(text).encode("utf-8", "replace").decode())
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{shown}</text>'


def _number(value: float) -> str:
    return f"{value:.4g}"


def check(path: Path) -> None:
    """Check that :func:`write` can write this kind of file here.

    Raises:
        InputError: the folder does not exist, or the package that makes PNG is missing.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder")
    if path.suffix.lower() == PNG:
        _cairosvg()


def write(path: Path, picture: str) -> None:
    """Replace the file by a picture, which is SVG. The suffix of the file decides its format.

    A reader sees either the former picture or the whole new one.

    Raises:
        OSError: the file cannot be written.
        InputError: the package that makes PNG is missing.
    """
    content = picture.encode()
    if path.suffix.lower() == PNG:
        content = _cairosvg().svg2png(bytestring=content, scale=2)
    write_atomically(path, content)


def _cairosvg() -> Any:
    try:
        return importlib.import_module("cairosvg")
    except (
        ImportError,
        OSError,
    ) as error:  # OSError: the package is there, but not the library of the system
        text = f"PNG needs the extra trainerctl[png] and the library cairo ({error}); or write an .svg file"
        raise InputError(text) from error
