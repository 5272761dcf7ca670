# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The reported progress, as ``get`` and ``describe`` show it. Reports may contain anything."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from pkg.why import LiveObject
from testkit.why.world import NOW, TrainJobObjects, condition, when

from trainerctl.cli import describe, get
from trainerctl.cli.terminal import Console
from trainerctl.cli.trainerstatus import duration, report_of

METRICS = [{"name": name, "value": value} for name, value in (("loss", "0.25"), ("lr", "1e-4"))]


def reporting(**status: Any) -> TrainJobObjects:
    world = TrainJobObjects()
    world.train_job["status"]["trainerStatus"] = {"lastUpdatedTime": when(12), **status}
    return world


def page(world: TrainJobObjects) -> str:
    out = io.StringIO()
    describe.print_page(world.snapshot(), Console(file=out))
    return out.getvalue()


def test_the_list_shows_the_progress_with_its_age() -> None:
    world = reporting(progressPercentage=42, estimatedRemainingSeconds=300, metrics=METRICS)

    (row,) = get.rows_of([LiveObject(world.train_job)], [], NOW)

    assert row[-1] == "42%, 5m left, loss=0.25 lr=1e-4, 12s ago"


def test_the_tree_and_the_page_show_the_progress() -> None:
    world = reporting(progressPercentage=42, metrics=METRICS * 3)

    assert next(get.tree_rows(world.snapshot()))[-1] == "42%, loss=0.25 lr=1e-4 loss=0.25 …, 12s ago"
    assert "\nProgress  42%, 12s ago\n  METRIC  VALUE\n  loss    0.25\n" in page(world)


def test_a_pipe_that_is_watched_gets_no_line_when_only_the_age_has_changed() -> None:
    world = reporting(progressPercentage=42)

    assert next(get.tree_rows(world.snapshot(), ages=False))[-1] == "42%"


def test_a_train_job_without_a_report_has_an_empty_cell() -> None:
    (row,) = get.rows_of([LiveObject(TrainJobObjects().train_job)], [], NOW)

    assert row[-1] == ""
    assert "Progress" not in page(TrainJobObjects())


@pytest.mark.parametrize("value", [float("nan"), -1, 101, 10**400, "42", True, None, [], {}, 4.2])
def test_numbers_that_cannot_be_right_are_left_out(value: Any) -> None:
    world = reporting(progressPercentage=value, estimatedRemainingSeconds=10**400 if value == 101 else value)

    (row,) = get.rows_of([LiveObject(world.train_job)], [], NOW)

    assert row[-1] in ("reported, 12s ago", "1m41s left, 12s ago")
    assert page(world)


@pytest.mark.parametrize("value", ["not a map", ["a"], 3, None, True])
def test_a_status_of_the_wrong_type_is_no_report(value: Any) -> None:
    world = TrainJobObjects()
    world.train_job["status"]["trainerStatus"] = value

    assert report_of(LiveObject(world.train_job)) is None


@pytest.mark.parametrize(
    "metrics",
    [
        "loss",
        {"name": "loss"},
        [None, 3, "loss", []],
        [{"name": 3, "value": "1"}, {"name": "loss", "value": 0.25}, {"name": "", "value": "1"}],
    ],
)
def test_metrics_of_the_wrong_type_are_left_out(metrics: Any) -> None:
    report = report_of(LiveObject(reporting(metrics=metrics).train_job))

    assert report is not None
    assert list(report.metrics) == []


@pytest.mark.parametrize(
    "time", [None, 3, "yesterday", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
def test_any_time_can_be_shown(time: Any) -> None:
    world = reporting(progressPercentage=1, lastUpdatedTime=time)

    assert page(world)
    (row,) = get.rows_of([LiveObject(world.train_job)], [], datetime.now(UTC))
    assert row[-1].startswith("1%, ")


def test_metrics_have_bounds_and_no_control_characters_on_the_screen() -> None:
    world = reporting(metrics=[{"name": f"\x1b[2J\n{'n' * 1000}", "value": "v\u202e" * 1000}] * 1000)

    text = page(world)

    assert not set(text) & {"\x1b", "\u202e"}
    lines = [line for line in text.splitlines() if "nnn" in line]
    assert len(lines) == 257  # one is that of the TrainJob among its objects
    assert max(map(len, lines)) < 900


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3900, "1h5m"),
        (90000, "1d1h"),
        (1 << 31, "24855d3h"),
    ],
)
def test_a_duration_has_two_units(seconds: int, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("attempts", "shown"), [(None, ""), (0, ""), (1, "started 2 times")])
def test_the_tree_shows_how_often_a_train_job_was_started(attempts: int | None, shown: str) -> None:
    world = TrainJobObjects()
    world.train_job["status"] = {"executionAttempts": attempts}
    assert next(get.tree_rows(world.snapshot()))[-1] == shown


@pytest.mark.parametrize(
    ("age", "event", "cell", "sentence"),
    [
        (10, False, "expires {} if TTLAfterFinished is enabled", "it will be deleted at {}, because"),
        (10, True, "expires {}", "it will be deleted at {}, because"),
        (600, True, "not deleted at {}", "it should have been deleted at {}, because"),
    ],
    ids=["the gate is not known", "announced", "the time has passed"],
)
def test_the_tree_and_the_page_show_when_a_finished_train_job_will_be_deleted(
    age: float, event: bool, cell: str, sentence: str
) -> None:
    world = reporting(progressPercentage=100)
    world.train_job["status"]["conditions"] = [condition("Complete", reason="R", age=age)]
    world.train_job["spec"]["ttlSecondsAfterFinished"] = 60
    if event:
        world.event(world.train_job, "TrainJobExpiring", "TrainJob will be deleted")

    assert next(get.tree_rows(world.snapshot()))[-1] == f"100%, 12s ago, {cell.format(when(age - 60))}"
    assert sentence.format(when(age - 60)) in page(world)


@pytest.mark.parametrize(
    ("age", "spec", "shown"),
    [
        pytest.param(300, {}, "", id="no deadline"),
        pytest.param(300, {"activeDeadlineSeconds": 600}, f", deadline {when(-300)}", id="a deadline"),
        pytest.param(-300, {"activeDeadlineSeconds": 600}, f", deadline {when(-900)}", id="another clock"),
        pytest.param(300, {"activeDeadlineSeconds": 600, "suspend": True}, "", id="suspended"),
        pytest.param(300, {"activeDeadlineSeconds": 600, "managedBy": "a.b/c"}, "", id="another controller"),
    ],
)
def test_the_tree_shows_when_a_running_train_job_will_fail(
    age: float, spec: dict[str, Any], shown: str
) -> None:
    world = reporting(progressPercentage=10)
    world.train_job["metadata"]["creationTimestamp"] = when(age)
    world.train_job["spec"] |= spec
    assert next(get.tree_rows(world.snapshot()))[-1] == f"10%, 12s ago{shown}"
