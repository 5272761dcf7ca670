# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every cause is documented, and a module finds it."""

import re
from pathlib import Path

from pkg.why.rules import CAUSES, RULES

ROOT = Path(__file__).parents[3]


def test_every_cause_is_documented_with_its_meaning() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", (ROOT / "docs" / "why.md").read_text(), re.MULTILINE)

    assert dict(rows) == CAUSES


def test_every_rule_is_named_by_some_module() -> None:
    code = "\n".join(
        path.read_text() for path in (ROOT / "pkg" / "why").rglob("*.py") if path.name != "rules.py"
    )

    assert [rule for rule in RULES if f'"{rule}"' not in code] == []


def test_no_remedy_of_the_table_leads_back_to_the_commands_that_print_it() -> None:
    # Remedies with commands for logs are made for the state of the pods; test_causes walks these.
    back = re.compile(r"trainerctl (?:why|logs|events|describe)\b")

    assert [name for name, rule in RULES.items() if back.search(rule.remedy)] == []


def test_each_variant_belongs_to_a_cause() -> None:
    variants = [rule.partition("/")[0] for rule in RULES if "/" in rule]

    assert [cause for cause in variants if cause not in CAUSES] == []
