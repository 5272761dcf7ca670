# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The progress that the pods of a TrainJob have reported: ``status.trainerStatus``.

The CRD restricts these values, but older CRDs and other writers do not. A value that cannot be right is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controller_runtime.machinery import JSON
from pkg.why import LiveObject
from pkg.why.liveobject import ago, at, maps, moment, text

_MOST_METRICS: Final = 256
_LONGEST: Final = 64
"""Names and values of metrics are cut after this many characters."""
_LONGEST_TIME: Final = 1 << 31
_SHOWN: Final = 3
_SHORT: Final = 32
"""The summary shows this many metrics, and at most this many characters of each."""


@dataclass(frozen=True)
class Report:
    """One report of the pods."""

    percent: int | None = None
    """From 0 to 100."""
    remaining: int | None = None
    """The seconds that the training will still take."""
    metrics: Sequence[tuple[str, str]] = ()
    """The names and values of the metrics. A value is any text."""
    updated: datetime | None = None

    @property
    def summary(self) -> str:
        """The report in a few words, without its age."""
        shown = [f"{name}={value}" for name, value in self.metrics[:_SHOWN]]
        shown = [each if len(each) <= _SHORT else f"{each[: _SHORT - 1]}…" for each in shown]
        parts = [
            "" if self.percent is None else f"{self.percent}%",
            "" if self.remaining is None else f"{duration(self.remaining)} left",
            " ".join([*shown, "…"] if len(self.metrics) > _SHOWN else shown),
        ]
        return ", ".join(filter(None, parts))

    def aged(self, now: datetime) -> str:
        """Return the report in a few words, with its age."""
        return f"{self.summary or 'reported'}, {ago(self.updated, now)}{' ago' if self.updated else ''}"


def report_of(train_job: LiveObject) -> Report | None:
    """Return the last report, or None if there is none."""
    status = train_job.at("status", "trainerStatus")
    if not isinstance(status, dict):
        return None
    metrics = [
        (text(each, "name")[:_LONGEST], text(each, "value")[:_LONGEST])
        for each in maps(status, "metrics")[:_MOST_METRICS]
    ]
    return Report(
        _within(at(status, "progressPercentage"), 100),
        _within(at(status, "estimatedRemainingSeconds"), _LONGEST_TIME),
        [(name, value) for name, value in metrics if name and value],
        moment(status, "lastUpdatedTime"),
    )


def duration(seconds: int) -> str:
    """Return a duration with its two largest units, such as ``1h5m``."""
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // below
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds}s"


def _within(value: JSON, most: int) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None
