# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The bench's evaluation of measurements: ratios, files and charts; and the programs that it accepts."""

import pytest
from harness import base, contest
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


@pytest.mark.parametrize("given", [["go"], ["=x"], ["go= "], ["ours=x"], ["a=x", "a=y"]])
def test_a_program_without_name_or_command_or_with_anothers_name_is_refused(given: list[str]) -> None:
    with pytest.raises(ValueError, match=r"NAME=CMD|same name"):
        entrants([OURS], given)
