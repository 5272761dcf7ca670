# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The bench's evaluation of measurements: ratios, files and charts; and the programs that it accepts."""

from pathlib import Path

import pytest
from harness import base, charts, contest, figures, summary
from harness.contest import Found
from harness.manager import ManagerError
from harness.plan import Entrant, entrants

OURS = Entrant("ours", "manager")


def found(**values: tuple[float, str]) -> Found:
    return Found(dict(values))


def test_ratios_are_taken_round_by_round_and_keep_their_spread() -> None:
    whole = {
        "ours": [found(cpu=(1.0, "CPU s")), found(cpu=(9.0, "CPU s")), found(cpu=(3.0, "CPU s"))],
        "go": [found(cpu=(2.0, "CPU s")), found(cpu=(10.0, "CPU s")), found(cpu=(3.0, "CPU s"))],
    }
    (cpu,) = contest.combine("burst", whole, {"cpu": "ratio ≤ 0.8"})
    assert (cpu.name, cpu.arm, cpu.value, cpu.alternative, cpu.alternative_value) == (
        "burst.cpu",
        "ours",
        3.0,
        "go",
        3.0,
    )
    assert cpu.ratios == pytest.approx((0.5, 0.9, 1.0))
    assert cpu.ratio == pytest.approx(0.9)
    assert cpu.met is False


async def test_a_round_in_which_one_failed_counts_for_nobody_and_who_begins_changes() -> None:
    order: list[str] = []

    async def run(entrant: Entrant) -> Found:
        order.append(entrant.name)
        if order == ["ours", "go", "go"]:
            raise ManagerError("gone")
        return found(turn=(float(len(order)), "s"))

    whole = await contest.contest(3, [OURS, Entrant("go", "trainer")], run)
    assert {name: [each.values["turn"][0] for each in kept] for name, kept in whole.items()} == {
        "ours": [1.0, 4.0],
        "go": [2.0, 5.0],
    }
    assert order == ["ours", "go", "go", "ours", "go"]


def test_cost_is_binding_beside_a_base_and_rates_are_only_shown() -> None:
    units = {
        "manager_cpu": "CPU s",
        "requests": "/job",
        "requests.patch jobsets": "/job",
        "rss": "MiB",
        "rate": "x/s",
    }
    ours, before = (
        [found(**{f"torch.1000.{name}": (each, unit) for name, unit in units.items()}) for each in rounds]
        for rounds in ((1.06, 1.04, 1.2), (1.0, 1.0, 1.0))
    )
    made = base.judged(contest.combine("burst", {"ours": ours, "dfca04bb": before}))
    assert [(each.name.rpartition("1000.")[2], each.met) for each in made] == [
        ("manager_cpu", False),
        ("requests", False),
        ("rss", False),
        ("rate", None),
    ]
    made = base.judged(contest.combine("burst", {"ours": before, "dfca04bb": ours}))
    assert all(each.met in (True, None) for each in made)


def measured() -> list[figures.Figure]:
    """Return the figures of two rounds of a burst with ours and a Go manager."""
    cpu = "torch.1000.manager_cpu"
    rate = "torch.1000.rate"
    unit = "CPU s/1,000 jobs"
    whole = {
        "ours": [
            found(**{rate: (200.0, "TrainJobs/s"), cpu: (1.0, unit)}),
            found(**{rate: (220.0, "TrainJobs/s"), cpu: (1.2, unit)}),
        ],
        "go-2.1.0": [
            found(**{rate: (100.0, "TrainJobs/s"), cpu: (2.0, unit)}),
            found(**{rate: (110.0, "TrainJobs/s"), cpu: (2.0, unit)}),
        ],
    }
    return contest.combine("burst", whole)


def test_the_table_has_a_column_for_each_program_with_ratios_and_their_spans() -> None:
    assert summary.table(measured()) == [
        "| figure | this manager | ratio to go-2.1.0; its figure | goal |",
        "| --- | --- | --- | --- |",
        "| CPU of the manager, created | 1.1 CPU s/1,000 jobs (1–1.2) | 0.55 (0.5–0.6); 2 | ≤ 0.5 |",  # noqa: RUF001
        "| burst: rate | 210 TrainJobs/s (200–220) | 2.00 (2–2); 105 |  |",  # noqa: RUF001
    ]


def test_a_chart_beside_a_go_manager_has_the_ratio_and_both_figures(tmp_path: Path) -> None:
    (path,) = charts.draw(tmp_path, measured())
    assert path.name == "burst-go-2-1-0.svg"
    assert "210 : 105 TrainJobs/s" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("given", [["go"], ["=x"], ["go= "], ["ours=x"], ["a=x", "a=y"]])
def test_a_program_without_name_or_command_or_with_anothers_name_is_refused(given: list[str]) -> None:
    with pytest.raises(ValueError, match=r"NAME=CMD|same name"):
        entrants([OURS], given)
