# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The bench's evaluation of measurements: ratios, files and charts; and the programs that it accepts."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

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


def test_a_figure_that_only_the_other_has_stands_with_its_like_and_divides_by_nothing() -> None:
    ours = found(**{"requests": (1.0, "/job"), "requests.patch jobsets": (1.0, "/job"), "rss": (70.0, "MiB")})
    other = found(
        **{"requests": (1.0, "/job"), "requests.update jobsets": (1.0, "/job"), "rss": (90.0, "MiB")}
    )
    made = contest.combine("burst", {"ours": [ours], "other": [other]})
    assert [each.name.removeprefix("burst.") for each in made] == [
        "requests",
        "requests.patch jobsets",
        "requests.update jobsets",
        "rss",
    ]
    assert [each.ratio for each in made[1:3]] == [None, 0.0]


def test_requests_by_object_leave_out_lists_watches_and_discovery() -> None:
    came_to = Found()
    counted = Counter({"patch jobsets": 8, "patch jobsets -> 409": 4, "list pods": 5, "get discovery": 2})
    came_to.requests("burst", counted, 4, "/job")
    assert came_to.values == {
        "burst.requests": (3.0, "/job"),
        "burst.requests.patch jobsets": (2.0, "/job"),
        "burst.requests.patch jobsets -> 409": (1.0, "/job"),
    }


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


def test_figures_survive_their_file(tmp_path: Path) -> None:
    kept = [figures.figure("a", "ms", [1.0, 2.0], alternative=("go", [2.0, 2.0]), arm="ours", target="≤ 3")]
    figures.write(tmp_path / "kept.json", kept)
    assert figures.read(tmp_path / "kept.json") == kept


def test_a_chart_shows_each_ratio_and_whether_it_is_the_better_one(tmp_path: Path) -> None:
    drawn = [
        figures.figure("burst.rate", "TrainJobs/s", [200.0], alternative=("go", [100.0]), arm="ours"),
        figures.figure("burst.cpu", "CPU s/1,000 jobs", [2.0], alternative=("go", [1.0]), arm="ours"),
    ]
    (path,) = charts.draw(tmp_path, drawn)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in root.iter(f"{space}rect") if each.get("class") in {"better", "worse"}]
    assert path.name == "burst-go.svg"
    assert [each.get("class") for each in bars] == ["better", "worse"]
    assert {float(each.get("width", 0)) for each in bars} == {float(bars[0].get("width", 0))}
    assert "ours ÷ go" in "".join(root.itertext())


def test_of_several_workloads_there_is_a_chart_of_what_matters_most(tmp_path: Path) -> None:
    names = ("burst.torch.200.p99", "burst.torch.200.p50", "status.torch.200.rate")
    drawn = [figures.figure(name, "ms", [3.0], alternative=("go", [2.0]), arm="ours") for name in names]
    paths = {path.name: path.read_text(encoding="utf-8") for path in charts.draw(tmp_path, drawn)}
    assert list(paths) == ["burst-go.svg", "status-go.svg", "overview-go.svg"]
    assert [name in paths["overview-go.svg"] for name in names] == [True, False, True]


def test_figures_without_an_alternative_are_drawn_as_they_are(tmp_path: Path) -> None:
    alone = [figures.figure(f"burst.{name}", "ms", [value]) for name, value in (("p50", 5.0), ("p99", 10.0))]
    (path,) = charts.draw(tmp_path, alone)
    widths = [
        float(each.get("width", 0))
        for each in ElementTree.fromstring(path.read_text(encoding="utf-8")).iter(
            "{http://www.w3.org/2000/svg}rect"
        )
        if each.get("class") == "plain"
    ]
    assert widths[1] == pytest.approx(2 * widths[0])


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


def test_programs_are_measured_beside_ours_which_comes_first() -> None:
    beside = [Entrant("go", "trainer")]
    assert entrants([OURS], ["b=y"], beside) == (OURS, *beside, Entrant("b", "y"))


def measured() -> list[figures.Figure]:
    """Return the figures of two rounds of a burst with ours, a Go manager and the ceiling, which has no CPU figures."""
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
        "ceiling": [found(**{rate: (400.0, "TrainJobs/s")}), found(**{rate: (440.0, "TrainJobs/s")})],
    }
    return contest.combine("burst", whole)


def test_the_ceiling_is_compared_where_it_was_measured_and_nowhere_else() -> None:
    assert [(each.name.rpartition(".")[2], each.alternative, each.ratio) for each in measured()] == [
        ("rate", "go-2.1.0", 2.0),
        ("rate", "ceiling", 0.5),
        ("manager_cpu", "go-2.1.0", pytest.approx(0.55)),
    ]


def test_figures_that_the_ceiling_lacks_stay_when_nothing_else_is_measured() -> None:
    whole = {
        "ours": [found(rate=(2.0, "jobs/s"), cpu=(1.0, "s"))],
        "ceiling": [found(rate=(4.0, "jobs/s"))],
    }
    made = contest.combine("burst", whole)
    assert [(each.name, each.alternative, each.value) for each in made] == [
        ("burst.rate", "ceiling", 2.0),
        ("burst.cpu", "", 1.0),
    ]


def test_the_table_has_a_column_for_each_program_with_ratios_and_their_spans() -> None:
    assert summary.table(measured()) == [
        "| figure | this manager | ratio to go-2.1.0; its figure | ratio to ceiling; its figure | goal |",
        "| --- | --- | --- | --- | --- |",
        "| CPU of the manager, created | 1.1 CPU s/1,000 jobs (1–1.2) | 0.55 (0.5–0.6); 2 |  | ≤ 0.5 |",  # noqa: RUF001
        "| burst: rate | 210 TrainJobs/s (200–220) | 2.00 (2–2); 105 | 0.50 (0.5–0.5); 420 |  |",  # noqa: RUF001
    ]


def test_a_chart_beside_a_go_manager_names_the_ceiling(tmp_path: Path) -> None:
    paths = {path.name: path.read_text(encoding="utf-8") for path in charts.draw(tmp_path, measured())}
    assert "210 : 105 TrainJobs/s, ceiling 420" in paths["burst-go-2-1-0.svg"]
    assert "ceiling 4" not in paths["burst-ceiling.svg"]


@pytest.mark.parametrize("given", [["go"], ["=x"], ["go= "], ["ours=x"], ["a=x", "a=y"], ["ceiling=x"]])
def test_a_program_without_name_or_command_or_with_anothers_name_is_refused(given: list[str]) -> None:
    with pytest.raises(ValueError, match=r"NAME=CMD|same name"):
        entrants([OURS], given)
