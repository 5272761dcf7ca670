# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A Markdown table of the main measurements, with a row for each of them and a column for each program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from harness.figures import Figure, short

_ROWS: Final = (
    ("idle RSS", "cold_start.0.start.rss", "≤ 1.1"),
    ("start to the first JobSet, empty cluster", "cold_start.0.first_jobset", "≤ 1.15"),
    ("CPU of the manager, created", "burst.torch.*.manager_cpu", "≤ 0.5"),
    ("CPU of the manager, completed", "status.torch.*.manager_cpu", "≤ 0.4"),
    ("burst: rate", "burst.torch.*.rate", ""),
    ("burst: p99", "burst.torch.*.p99", "≤ 0.5"),
    ("status: rate", "status.torch.*.rate", ""),
    ("paced: p50", "paced.torch.p50", "≤ 0.9"),
    ("paced: p99", "paced.torch.p99", "≤ 0.9"),
    ("review straight to the port: CPU", "admission.direct.32.manager_cpu", ""),
    ("pods at once: rate", "pod_grouping.burst.rate", ""),
    ("pods at once: CPU", "pod_grouping.burst.manager_cpu", ""),
    ("pods at once: requests", "pod_grouping.burst.requests", ""),
    ("pods at once: RSS", "pod_grouping.burst.rss", ""),
)
"""Title, name of the figure, and the goal for the ratio to the first other program."""


def table(found: Sequence[Figure]) -> list[str]:
    """Return the lines of the table; it has no rows for measurements that were not taken."""
    others = [each.alternative for each in found if each.alternative and each.arm]
    columns = list(dict.fromkeys(others))
    head = ["figure", "this manager", *(f"ratio to {name}; its figure" for name in columns), "goal"]
    return [_line(head), _line(["---"] * len(head)), *map(_line, _rows(found, columns))]


def _rows(found: Sequence[Figure], columns: Sequence[str]) -> Iterator[list[str]]:
    for title, pattern, goal in _ROWS:
        by_name: dict[str, dict[str, Figure]] = {}
        for each in found:
            if fnmatchcase(each.name, pattern):
                by_name.setdefault(each.name, {})[each.alternative] = each
        for name, measured in by_name.items():
            ours = next(iter(measured.values()))
            shown = f"{title} ({name.split('.')[2]})" if len(by_name) > 1 else title
            cells = [_beside(measured[column]) if column in measured else "" for column in columns]
            yield [shown, f"{short(ours.value)} {ours.unit}{_span(ours.rounds)}", *cells, goal]


def _beside(each: Figure) -> str:
    if each.ratio is None or each.alternative_value is None:
        return ""
    return f"{each.ratio:.2f}{_span(each.ratios)}; {short(each.alternative_value)}"


def _span(values: Sequence[float]) -> str:
    return f" ({short(min(values))}–{short(max(values))})" if len(values) > 1 else ""  # noqa: RUF001 a range


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
