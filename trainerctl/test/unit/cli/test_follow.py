# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl progress``: its lines, and the picture of the metrics."""

import argparse
import importlib
import io
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import anyio
import pytest
from pkg.why import LiveObject
from testkit.why.world import NOW, TrainJobObjects, condition, when

from trainerctl.cli import follow, live, plot
from trainerctl.cli.follow import History
from trainerctl.cli.terminal import Console
from trainerctl.cli.trainerstatus import Report, report_of
from trainerctl.offline.inputfiles import InputError

SVG = "{http://www.w3.org/2000/svg}"


def status(percent: int, loss: str, **others: Any) -> dict[str, Any]:
    return {
        "trainerStatus": {
            "progressPercentage": percent,
            "estimatedRemainingSeconds": 100 - percent,
            "metrics": [{"name": "loss", "value": loss}],
            "lastUpdatedTime": when(100 - percent),
        },
        **others,
    }


Progress = Callable[..., Awaitable[tuple[int, str]]]
COMPLETE = {"conditions": [condition("Complete")]}
FAILED = {"conditions": [condition("Failed")]}


@pytest.fixture
def progress(changing: Callable[[Any], live.Connection]) -> Progress:
    """Return a function that runs the command for a TrainJob that has one status after the other."""

    async def run(
        statuses: Sequence[dict[str, Any] | None], output: str = "table", plot: str = ""
    ) -> tuple[int, str]:
        job = TrainJobObjects().train_job
        changing([None if each is None else {**job, "status": each} for each in statuses])
        arguments, out = argparse.Namespace(name="llama", output=output, plot=plot), io.StringIO()
        code = await follow.progress_command(arguments, Console(file=out), Console(file=io.StringIO()))
        return code, out.getvalue()

    return run


async def test_each_report_is_a_line_until_the_end(progress: Progress) -> None:
    states = [{}, status(10, "2.5"), status(10, "2.5", x=1), status(60, "0.5"), status(60, "0.5", **COMPLETE)]

    code, text = await progress(states)

    assert code == 0
    assert [line.split() for line in text.splitlines()] == [
        ["UPDATED", "PROGRESS", "LEFT", "METRICS"],
        [when(90), "10%", "1m30s", "loss=2.5"],
        [when(40), "60%", "40s", "loss=0.5"],
    ]


async def test_json_has_a_report_in_each_line_with_the_names_of_the_api(progress: Progress) -> None:
    code, text = await progress([status(10, "2.5"), status(60, "0.5\x1b", **FAILED)], "json")

    assert code == 1
    first, second = (json.loads(line) for line in text.splitlines())
    assert first == status(10, "2.5")["trainerStatus"]
    assert second["metrics"] == [{"name": "loss", "value": "0.5\x1b"}]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([None], "TrainJob team-a/llama does not exist"),
        ([{}, None], "TrainJob team-a/llama was deleted"),
        ([COMPLETE], "feature gate TrainJobStatus"),
    ],
)
async def test_without_a_report_the_cause_is_named(
    progress: Progress, capsys: pytest.CaptureFixture[str], statuses: Any, said: str
) -> None:
    assert await progress(statuses) == (1, "")
    assert said in capsys.readouterr().err


async def test_the_picture_is_drawn_again_after_each_report(progress: Progress, tmp_path: Path) -> None:
    file = tmp_path / "llama.svg"
    states = [status(10, "2.5"), status(60, "0.5"), status(100, "0.25", **COMPLETE)]

    code, _ = await progress(states, plot=str(file))

    assert code == 0
    assert [each.name async for each in anyio.Path(tmp_path).iterdir()] == [file.name]
    root = ElementTree.fromstring(file.read_text())
    assert len(root.findall(f"{SVG}polyline")) == 2
    texts = [each.text for each in root.findall(f"{SVG}text")]
    assert {"TrainJob team-a/llama", "progress (%)", "loss", "0.25", "1m30s"} <= set(texts)
    assert f"Complete, 100%, {when(0)}" in texts


async def test_a_picture_that_cannot_be_written_is_refused_before_the_cluster_is_asked(
    progress: Progress, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"trainerctl\[png\].*No module named 'cairosvg'.*\.svg"):
        await progress([], plot=str(tmp_path / "a.png"))
    with pytest.raises(InputError, match="is not a folder"):
        await progress([], plot=str(tmp_path / "none" / "a.svg"))


def test_a_png_is_made_of_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("cairosvg")
    plot.write(tmp_path / "a.png", plot.svg("a", "b", {"loss": [(0, 1), (1, 2)]}))

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


HUGE = 1.7e308


@pytest.mark.parametrize(
    "points",
    [
        [(0.0, 1.0)],
        [(0.0, 1.0), (0.0, 2.0)],
        [(0.0, 3.0), (9.0, 3.0)],
        [(0.0, -HUGE), (1.0, HUGE), (1e12, 0.0)],
        [(float(x), math.sin(x)) for x in range(10_000)],
        [],
    ],
)
def test_any_numbers_can_be_drawn_inside_the_picture(points: list[tuple[float, float]]) -> None:
    text = plot.svg("title", "", {"loss": points})

    root = ElementTree.fromstring(text)
    assert "nan" not in text
    assert "inf" not in text.replace("infinite", "")
    assert len(text) < 100_000
    for line in root.findall(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= float(root.attrib["width"])
            assert 0 <= y <= float(root.attrib["height"])


@pytest.mark.parametrize(
    ("end", "times"),
    [
        (0.0, ["0s"]),
        (3.0, ["0s", "1s", "2s", "3s"]),
        (3600.0, ["0s", "15m", "30m", "45m", "1h"]),
        (86400.0 * 9, ["0s", "2d", "4d", "6d", "8d"]),
        (86400.0 * 300, ["0s", "300d"]),
    ],
)
def test_the_times_below_a_panel_are_round(end: float, times: list[str]) -> None:
    root = ElementTree.fromstring(plot.svg("title", "", {"loss": [(0.0, 1.0), (end, 2.0)]}))

    found = [each.text or "" for each in root.iter(f"{SVG}text") if each.attrib["font-size"] == "11"]
    assert found == times


def test_the_panel_of_the_progress_shows_how_much_is_left() -> None:
    root = ElementTree.fromstring(plot.svg("title", "", {"progress (%)": [(0.0, 0.0), (60.0, 42.0)]}))

    scale = [each.text for each in root.iter(f"{SVG}text") if each.attrib["text-anchor"] == "end"]
    assert scale[:4] == ["42", "0", "50", "100"]
    (line,) = root.iter(f"{SVG}polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert heights[0] - heights[-1] == pytest.approx(0.42 * 94, abs=0.1)


def test_no_text_breaks_the_picture() -> None:
    names = ["<script>alert(1)</script>", "a&b", '"quoted"', "\x1b[2J\x00\ufffe", "\ud800", "]]>"]

    text = plot.svg("</text>\x07", "\x0b", {name: [(0.0, 1.0)] for name in [*names, *map(str, range(1000))]})

    root = ElementTree.fromstring(text)
    assert {each.tag for each in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "rect", "text", "line", "polyline", "circle")
    }
    assert "982 more metrics" in text
    assert "\x1b" not in text


def test_reports_with_odd_times_and_values_make_a_series_that_does_not_go_back() -> None:
    history = History()
    for second, time, value in (
        (0, "0001-01-01T00:00:00+23:59", "nan"),
        (1, None, "-inf"),
        (2, "9999-12-31T23:59:59-23:59", "1e999"),
        (3, when(600), "2.5"),
        (4, when(-2), "not a number"),
        (5, when(-3), "1_0"),
    ):
        job = TrainJobObjects().train_job
        job["status"]["trainerStatus"] = {
            "metrics": [{"name": "loss", "value": value}],
            "lastUpdatedTime": time,
        }
        report = report_of(LiveObject(job))
        assert report is not None
        assert history.add(report, NOW + timedelta(seconds=second))

    assert history.series() == {"progress (%)": [], "loss": [(2.0, 2.5), (3.0, 10.0)]}


def test_a_long_training_keeps_a_bounded_number_of_reports() -> None:
    history = History()
    for second in range(30_000):
        history.add(Report(second % 101), NOW + timedelta(seconds=second))

    points = history.series()["progress (%)"]
    assert len(points) <= 8192
    assert points[-1][0] > 29_000


def test_a_training_with_many_metrics_keeps_the_first_names_and_all_their_values() -> None:
    history = History()
    history.add(Report(1, metrics=(*((f"m{number}", "1") for number in range(300)),)), NOW)
    history.add(Report(2, metrics=(("m0", "2"), ("m299", "2"))), NOW + timedelta(seconds=1))

    series = history.series()
    assert len(series) == 257  # 256 metrics and the percentage
    assert series["m0"] == [(0.0, 1.0), (1.0, 2.0)]
    assert "m299" not in series
