# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The figures that workloads measure: they are printed as a table, kept as JSON, and compared with alternatives."""

from __future__ import annotations

import dataclasses
import json
import operator
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

_HEADINGS: Final = (
    "figure",
    "value",
    "unit",
    "spread",
    "alternative",
    "its value",
    "ratio",
    "spread",
    "target",
    "met",
)
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {"≥": operator.ge, "≤": operator.le}


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure, beside that of the alternative, which was measured in the same run.

    ``ratio`` is the median of the ratios of the rounds, so that a disturbance of a whole round does not change it.
    """

    name: str
    value: float
    unit: str
    alternative: str = ""
    alternative_value: float | None = None
    ratio: float | None = None
    target: str = ""
    """The target of the value, such as ``≥ 20000`` or ``≤ 1.5``, or of the ratio: ``ratio ≥ 0.9``."""
    rounds: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    """The ratios of the rounds, of which ``ratio`` is the median; a round whose divisor is 0 has no ratio."""
    arm: str = ""
    """The name of the program that was measured, if programs are compared."""

    @property
    def more_is_better(self) -> bool:
        """True for rates: a higher value is better."""
        return self.unit.split()[0].endswith("/s") or self.unit.endswith("/CPU s")

    @property
    def met(self) -> bool | None:
        """True if the target is reached; None without a target."""
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
    arm: str = "",
) -> Figure:
    """Return the median of the rounds, beside the median of the rounds of an alternative."""
    what, others = alternative or ("", ())
    ratios = [ours / other for ours, other in zip(rounds, others, strict=True) if other] if others else []
    return Figure(
        name=name,
        value=statistics.median(rounds),
        unit=unit,
        alternative=what,
        alternative_value=statistics.median(others) if others else None,
        ratio=statistics.median(ratios) if ratios else None,
        target=target,
        rounds=tuple(rounds),
        ratios=tuple(ratios),
        arm=arm,
    )


def write(path: Path, found: Iterable[Figure]) -> None:
    """Write figures as JSON."""
    listed = [{**dataclasses.asdict(each), "met": each.met} for each in found]
    path.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def show(found: Iterable[Figure]) -> None:
    """Print a table of figures."""
    table = Table(*_HEADINGS)
    for each in found:
        met = "" if each.met is None else "yes" if each.met else "NO"
        other, ratio = each.alternative_value, each.ratio
        table.add_row(
            each.name,
            short(each.value),
            each.unit,
            _spread(each.rounds),
            each.alternative,
            "" if other is None else short(other),
            "" if ratio is None else short(ratio),
            _spread(each.ratios),
            each.target,
            met,
        )
    console = Console()
    Console(width=None if console.is_terminal else 200).print(table)


def _spread(values: Sequence[float]) -> str:
    return f"{short(min(values))} … {short(max(values))}" if len(values) > 1 else ""


def short(value: float) -> str:
    """Return a number with three significant digits, or all digits before the point if there are more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
