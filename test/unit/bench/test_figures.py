# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from harness import command, figures, measure


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    made = figures.figure("rate", "1/s", [10, 100, 12], alternative=("loop", [10, 200, 6]))
    assert (made.value, made.alternative_value, made.ratio) == (12, 10, 1)


@pytest.mark.parametrize(
    ("target", "met"),
    [
        ("", None),
        ("≥ 12", True),
        ("≥ 13", False),
        ("≤ 12", True),
        ("ratio ≥ 1", True),
        ("ratio ≤ 0.5", False),
    ],
)
def test_a_target_judges_the_value_or_the_ratio(target: str, met: bool | None) -> None:
    made = figures.figure("rate", "1/s", [12], alternative=("loop", [12]), target=target)
    assert made.met is met


def test_figures_are_kept_and_read_again(tmp_path: Path) -> None:
    found = [
        figures.figure("a", "s", [1, 2], alternative=("b", [2, 4]), target="≤ 1.5"),
        figures.figure("c", "MiB", [3]),
    ]
    figures.write(tmp_path / "run.json", found)
    assert figures.read(tmp_path / "run.json") == found


def test_two_runs_are_compared_figure_by_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("before", 2.0), ("after", 3.0)):
        made = figures.figure("rate", "1/s", [value], alternative=("loop", [4.0]))
        figures.write(tmp_path / name, [made, figures.figure(f"only {name}", "s", [1])])
    assert command.main(["--compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "rate" in line and "1/s" in line]
    assert [cell.strip() for cell in row.split("│")[3:-1]] == ["2", "3", "1.5", "0.5", "0.75"]


def test_every_workload_says_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(command.WORKLOADS)
    assert all(len(line.split()) > 5 for line in lines)


async def test_the_arms_take_turns_after_a_round_that_does_not_count() -> None:
    order: list[tuple[str, int]] = []

    def arm(name: str) -> measure.Arm:
        async def run(number: int) -> measure.Spent:
            order.append((name, number))
            return measure.Spent(number, 0)

        return run

    spent = await measure.take_turns(2, {"a": arm("a"), "b": arm("b")})
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert [each.wall for each in spent["a"]] == [1, 2]
