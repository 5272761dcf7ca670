# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""SVG charts: bars from 1 for the ratios of our figures to an alternative's.

There is one file for each workload and alternative. The colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from harness.figures import Figure, short

_OVERVIEW: Final = "overview"
_WIDTH: Final = 980
_LABEL: Final = 300
_PLOT: Final = 330
_ROW: Final = 24
_TOP: Final = 58
_REACH: Final = 4.0
"""Ratios are drawn from a quarter to four times; larger ratios end at the edge, with their number."""
_TICKS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
_NOT_DRAWN: Final = ("bench_cpu", "etcd_cpu", "others", "p95")
_HEADLINES: Final = (
    "burst.torch.*.rate",
    "burst.torch.*.p99",
    "burst.torch.*.manager_cpu",
    "burst.torch.*.rss",
    "burst.*.requests",
    "paced.torch.p50",
    "paced.torch.p99",
    "status.torch.*.rate",
    "status.torch.*.manager_cpu",
    "cold_start.*.first_jobset",
    "cold_start.*.start.peak_rss",
    "admission.direct.32.manager_cpu",
    "pod_grouping.burst.rate",
    "pod_grouping.*.requests",
    "pod_grouping.*.manager_cpu",
    "pod_grouping.burst.rss",
    "pod_grouping.paced.p50",
)
_STARTS: Final = "cold_start"
"""The workload whose peak memory is drawn: it differs from the memory at its end."""
_STYLE: Final = """
svg { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; }
.ground { fill: #ffffff; } text { fill: #24292f; } .dim { fill: #57606a; } .line { stroke: #d0d7de; }
.one { stroke: #57606a; } .better { fill: #2da44e; } .worse { fill: #d4781c; }
.spread { stroke: #24292f; stroke-width: 1.5; opacity: .65; } .title { font-weight: 600; font-size: 15px; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117; } text { fill: #e6edf3; } .dim { fill: #9198a1; } .line { stroke: #30363d; }
  .one { stroke: #9198a1; } .better { fill: #3fb950; } .worse { fill: #e09b3d; }
  .spread { stroke: #e6edf3; }
}
"""


def draw(folder: Path, found: Sequence[Figure]) -> list[Path]:
    """Write a chart for each workload and alternative, and an overview of the main figures; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [each for each in found if each.ratio is not None and _is_drawn(each)]
    sheets: dict[tuple[str, str], list[Figure]] = {}
    for each in found:
        workload = each.name.partition(".")[0]
        sheets.setdefault((workload, each.alternative), []).append(each)
    if len({workload for workload, _ in sheets}) > 1:
        for each in filter(_is_headline, found):
            sheets.setdefault((_OVERVIEW, each.alternative), []).append(each)
    written = []
    for (workload, alternative), drawn in sheets.items():
        name = f"{workload}-{alternative}"
        path = folder / f"{''.join(c if c.isalnum() or c in '-_' else '-' for c in name)}.svg"
        path.write_text(_ratios(workload, drawn), encoding="utf-8")
        written.append(path)
    return written


def _is_headline(each: Figure) -> bool:
    return any(fnmatchcase(each.name, pattern) for pattern in _HEADLINES)


def _is_drawn(each: Figure) -> bool:
    """Return False for figures that only the table shows: single requests, and other parties' CPU."""
    if each.name.endswith(_NOT_DRAWN) or ".requests." in each.name:
        return False
    return each.name.startswith(_STARTS) or not each.name.endswith("peak_rss")


def _ratios(workload: str, drawn: Sequence[Figure]) -> str:
    first = drawn[0]
    what = f"{workload}: {first.arm or 'ours'} ÷ {first.alternative or 'the alternative'}"
    rows = [_scale(len(drawn))]
    for number, each in enumerate(drawn):
        assert each.ratio is not None
        y = _TOP + number * _ROW
        start, end = sorted((_x(1.0), _x(each.ratio)))
        better = each.ratio >= 1 if each.more_is_better else each.ratio <= 1
        rows.append(_label(y, each.name if workload == _OVERVIEW else each.name.partition(".")[2]))
        rows.append(_bar(y, start, max(end - start, 1.5), "better" if better else "worse"))
        if len(each.ratios) > 1:
            low, high = _x(min(each.ratios)), _x(max(each.ratios))
            middle = y + _ROW / 2
            rows.append(f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>')
        alone = f"{short(each.value)} : {short(each.alternative_value or 0)} {each.unit}"
        rows.append(_number(y, f"{each.ratio:.2f}", alone))
    return _sheet(
        what,
        "green is better, the line in a bar is the spread of the rounds; then both figures",
        len(drawn),
        rows,
    )


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, 1 / _REACH), _REACH)) / math.log(_REACH)
    return _LABEL + _PLOT * (share + 1) / 2


def _scale(count: int) -> str:
    bottom = _TOP + count * _ROW
    drawn = []
    for tick in _TICKS:
        x = _x(tick)
        which = "one" if tick == 1 else "line"
        drawn.append(f'<line class="{which}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        drawn.append(f'<text class="dim" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    return "".join(drawn)


def _label(y: int, text: str) -> str:
    return f'<text x="{_LABEL - 10}" y="{y + 16}" text-anchor="end">{escape(text)}</text>'


def _bar(y: int, x: float, width: float, which: str) -> str:
    return f'<rect class="{which}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="2"/>'


def _number(y: int, number: str, more: str) -> str:
    x = _LABEL + _PLOT + 12
    return (
        f'<text x="{x}" y="{y + 16}">{escape(number)}<tspan class="dim" dx="8">{escape(more)}</tspan></text>'
    )


def _sheet(title: str, subtitle: str, count: int, rows: Iterable[str]) -> str:
    height = _TOP + count * _ROW + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f'<rect class="ground" width="{_WIDTH}" height="{height}"/>'
        f'<text class="title" x="16" y="24">{escape(title)}</text>'
        f'<text class="dim" x="16" y="44">{escape(subtitle)}</text>'
        f"{''.join(rows)}</svg>\n"
    )
