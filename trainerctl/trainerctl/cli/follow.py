# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl progress``: prints each report of a TrainJob's progress until it has ended, and draws the metrics."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from controller_runtime.machinery import JSON
from controller_runtime.machinery.meta import format_time
from controller_runtime.machinery.printable import printable_json
from pkg.why.phase import Phase, phase

from trainerctl.cli import live, plot, streams, trainerstatus
from trainerctl.cli.terminal import Console
from trainerctl.cli.trainerstatus import Report

_MOST_REPORTS: Final = 8192
"""When there are more reports, every second one is forgotten: the picture still shows the whole time."""
_MOST_NAMES: Final = 256
_ROW: Final = "{:<20}  {:>8}  {:>8}  {}"


async def progress_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the reports of a TrainJob until it has ended. Return 0 if it is complete, else 1.

    Raises:
        InputError: the picture cannot be written in this format, or to this folder.
        StatusError: the TrainJob cannot be read.
    """
    picture = Path(arguments.plot) if arguments.plot else None
    if picture is not None:
        plot.check(picture)
    async with live.connect(arguments) as cluster:
        return await _Follower(cluster, arguments, picture, out).follow()


class History:
    """The reports of a TrainJob in the order in which they were seen."""

    def __init__(self) -> None:
        self._reports: list[tuple[datetime, Report]] = []

    def add(self, report: Report, now: datetime) -> bool:
        """Add a report that was seen at ``now``. Return False if it is the same as the last one."""
        if self._reports and self._reports[-1][1] == report:
            return False
        earliest = self._reports[-1][0] if self._reports else None
        # The time in a report is the one of the pod's clock, or any time that a tenant has written.
        at = report.updated or now
        at = now if at > now or (now - at).days > 0 else at
        self._reports.append((at if earliest is None else max(at, earliest), report))
        if len(self._reports) > _MOST_REPORTS:
            self._reports = self._reports[::2]
        return True

    def series(self) -> dict[str, list[plot.Point]]:
        """Return the points of each metric that has numbers, the percentage first."""
        found: dict[str, list[plot.Point]] = {plot.PROGRESS: []}
        for at, report in self._reports:
            seconds = (at - self._reports[0][0]).total_seconds()
            if report.percent is not None:
                found[plot.PROGRESS].append((seconds, float(report.percent)))
            for name, value in dict(report.metrics).items():
                if name not in found and len(found) > _MOST_NAMES:
                    continue
                if (number := _number(value)) is not None:
                    found.setdefault(name, []).append((seconds, number))
        return found


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class _Follower:
    def __init__(
        self,
        cluster: live.Connection,
        arguments: argparse.Namespace,
        picture: Path | None,
        out: Console,
    ) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._picture = picture
        self._history = History()
        self._out = out
        self._any = False

    async def follow(self) -> int:
        """Show each report until the TrainJob has ended or is deleted. Return the exit code."""
        name = self._arguments.name
        problem = "does not exist"
        async with aclosing(self._cluster.states(name)) as states:
            async for job in states:
                if job is None:
                    break
                problem, now = "was deleted", phase(job)
                if (report := trainerstatus.report_of(job)) is not None:
                    self._show(report, now)
                    if now.ended:
                        self._draw(report, now)
                if now.ended:
                    return self._ended(now)
        streams.say_error(f"TrainJob {self._cluster.namespace}/{name} {problem}")
        return 1

    def _show(self, report: Report, now: Phase) -> None:
        seen = self._cluster.clock.corrected(datetime.now(UTC))
        if not self._history.add(report, seen):
            return
        updated = format_time(report.updated) if report.updated else ""
        if self._arguments.output == "json":
            line = printable_json(json.dumps(_wire(report, updated), ensure_ascii=False))
            self._out.file.write(f"{line}\n")
        else:
            if not self._any:
                self._out.say((_ROW.format("UPDATED", "PROGRESS", "LEFT", "METRICS"), "bold"))
            percent = "" if report.percent is None else f"{report.percent}%"
            left = "" if report.remaining is None else trainerstatus.duration(report.remaining)
            metrics = " ".join(f"{key}={value}" for key, value in report.metrics)
            self._out.say(_ROW.format(updated, percent, left, metrics).rstrip())
        streams.flush()
        self._any = True
        self._draw(report, now)

    def _draw(self, report: Report, now: Phase) -> None:
        if self._picture is None:
            return
        percent = "" if report.percent is None else f"{report.percent}%"
        updated = format_time(report.updated) if report.updated else ""
        title = f"TrainJob {self._cluster.namespace}/{self._arguments.name}"
        subtitle = ", ".join(filter(None, [now, percent, updated]))
        plot.write(self._picture, plot.svg(title, subtitle, self._history.series()))

    def _ended(self, now: Phase) -> int:
        shown = f"TrainJob {self._cluster.namespace}/{self._arguments.name}"
        if not self._any:
            streams.say_error(
                f"{shown} {now.said} and has reported no progress: this needs the feature gate TrainJobStatus "
                "of the manager and a report of the training, see docs/progress.md"
            )
            return 1
        return 0 if now is Phase.COMPLETE else 1


def _wire(report: Report, updated: str) -> dict[str, JSON]:
    """Return a report with the names of the API. Values that cannot be right are missing."""
    metrics: Sequence[dict[str, JSON]] = [{"name": name, "value": value} for name, value in report.metrics]
    found: dict[str, JSON] = {
        "progressPercentage": report.percent,
        "estimatedRemainingSeconds": report.remaining,
        "metrics": list(metrics) or None,
        "lastUpdatedTime": updated or None,
    }
    return {name: value for name, value in found.items() if value is not None}
