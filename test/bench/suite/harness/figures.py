# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What a workload finds out, as a value: printed as a table, kept as JSON, compared with another run's."""

from __future__ import annotations

import dataclasses
import json
import operator
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {"≥": operator.ge, "≤": operator.le}


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure and what the alternative, measured in the same run, came to.

    ``ratio`` is the median of the rounds' own ratios, so what slows a whole round down leaves it alone.
    """

    name: str
    value: float
    unit: str
    alternative: str = ""
    alternative_value: float | None = None
    ratio: float | None = None
    target: str = ""
    """``≥ 20000`` or ``≤ 1.5``: what the value shall reach; ``ratio ≥ 0.9`` is about the ratio."""
    rounds: tuple[float, ...] = ()

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if not self.target:
            return None
        *about, sign, limit = self.target.split()
        judged = self.ratio if about else self.value
        return judged is not None and _COMPARISONS[sign](judged, float(limit))


def figure(
    name: str,
    unit: str,
    rounds: Sequence[float],
    *,
    alternative: tuple[str, Sequence[float]] | None = None,
    target: str = "",
) -> Figure:
    """Return the median of the rounds beside that of an alternative's, which took turns with them."""
    what, others = alternative or ("", ())
    return Figure(
        name=name,
        value=statistics.median(rounds),
        unit=unit,
        alternative=what,
        alternative_value=statistics.median(others) if others else None,
        ratio=statistics.median([ours / other for ours, other in zip(rounds, others, strict=True)])
        if others
        else None,
        target=target,
        rounds=tuple(rounds),
    )


def write(path: Path, found: Iterable[Figure]) -> None:
    """Keep figures as JSON."""
    listed = [{**dataclasses.asdict(each), "met": each.met} for each in found]
    path.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> list[Figure]:
    """Return the figures that :func:`write` kept."""
    known = {field.name for field in dataclasses.fields(Figure)}
    listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [
        Figure(
            **{**{key: value for key, value in each.items() if key in known}, "rounds": tuple(each["rounds"])}
        )
        for each in listed
    ]


def show(found: Iterable[Figure]) -> None:
    """Print a table of figures."""
    table = Table("figure", "value", "unit", "spread", "alternative", "its value", "ratio", "target", "met")
    for each in found:
        spread = f"{short(min(each.rounds))} … {short(max(each.rounds))}" if len(each.rounds) > 1 else ""
        met = "" if each.met is None else "yes" if each.met else "NO"
        other, ratio = each.alternative_value, each.ratio
        table.add_row(
            each.name,
            short(each.value),
            each.unit,
            spread,
            each.alternative,
            "" if other is None else short(other),
            "" if ratio is None else short(ratio),
            each.target,
            met,
        )
    _print(table)


def show_comparison(before: Sequence[Figure], after: Sequence[Figure]) -> None:
    """Print two runs side by side; where machines differ, judge the ratios."""
    table = Table("figure", "unit", "before", "after", "after / before", "ratio before", "ratio after")
    old = {each.name: each for each in before}
    for new in after:
        if (was := old.get(new.name)) is None:
            continue
        table.add_row(
            new.name,
            new.unit,
            short(was.value),
            short(new.value),
            short(new.value / was.value) if was.value else "",
            "" if was.ratio is None else short(was.ratio),
            "" if new.ratio is None else short(new.ratio),
        )
    _print(table)


def short(value: float) -> str:
    """Return three significant digits, and every digit before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _print(table: Table) -> None:
    console = Console()
    Console(width=None if console.is_terminal else 200).print(table)
