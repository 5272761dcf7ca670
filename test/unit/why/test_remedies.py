# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every cause is documented, and every variant of a remedy is given in some state and can be followed."""

import re
from pathlib import Path

import pytest

from pkg.why.causes import outputs, refusals
from pkg.why.rules import CAUSES, REMEDIES, RULES
from testkit.why.cases import CASES, VARIANTS, State
from testkit.why.remedies import mistakes
from testkit.why.world import TrainJobObjects

ROOT = Path(__file__).parents[3]
STATES: list[tuple[str, State]] = [*((case.id, case.values[-1]) for case in CASES), *VARIANTS]


@pytest.fixture(scope="module")
def given() -> dict[str, dict[str, str]]:
    """Return the remedies that are given in all states, by rule."""
    found: dict[str, dict[str, str]] = {}
    for name, state in STATES:
        world = TrainJobObjects()
        state(world)
        for each in world.verdict().findings:
            found.setdefault(each.rule, {})[each.advice] = name
    return found


def pattern(template: str) -> re.Pattern[str]:
    """Return a pattern of the texts that a template may become."""
    parts = re.split(r"\{[\w.!]+\}", template.rstrip())
    return re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)


def test_each_rule_is_found_in_some_state(given: dict[str, dict[str, str]]) -> None:
    assert [rule for rule in RULES if rule not in given] == []


@pytest.mark.parametrize("table", ["remedies", "output", "projects"])
def test_each_variant_of_a_remedy_is_given_in_some_state(
    table: str, given: dict[str, dict[str, str]]
) -> None:
    tables = {
        "remedies": REMEDIES,
        "output": {each: each for each in outputs.SAID.values()},
        "projects": refusals.PROJECTS,
    }
    texts = [text for remedies in given.values() for text in remedies]

    never = [name for name, each in tables[table].items() if not any(map(pattern(each).search, texts))]

    assert never == []


def test_every_command_in_a_remedy_is_one_that_its_program_accepts(given: dict[str, dict[str, str]]) -> None:
    texts = {text: name for remedies in given.values() for text, name in remedies.items()}

    assert {name: found for text, name in texts.items() if (found := list(mistakes(text)))} == {}


def test_a_wrong_command_is_noticed() -> None:
    texts = (
        "Read it: trainerctl logs a -n b --everything",
        "do it (kubectl fix node a), then",
        "x: trainerctl explain shows it.",
    )
    assert [list(mistakes(text)) for text in texts] == [
        ["trainerctl logs a -n b --everything"],
        ["kubectl fix node a"],
        ["trainerctl explain shows it"],
    ]


def test_every_cause_is_documented_with_its_meaning() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", (ROOT / "docs" / "why.md").read_text(), re.MULTILINE)

    assert dict(rows) == CAUSES


def test_every_rule_is_named_by_some_module() -> None:
    code = "\n".join(
        path.read_text() for path in (ROOT / "pkg" / "why").rglob("*.py") if path.name != "rules.py"
    )

    assert [rule for rule in RULES if f'"{rule}"' not in code] == []


def test_each_variant_belongs_to_a_cause() -> None:
    variants = [rule.partition("/")[0] for rule in RULES if "/" in rule]

    assert [cause for cause in variants if cause not in CAUSES] == []
