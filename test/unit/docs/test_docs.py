# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code: references are complete, and Python blocks run."""

import re
import threading
from pathlib import Path

import pytest

from hack import reference
from pkg.apis.trainer.v1alpha1 import TrainJobSpec

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


@pytest.mark.parametrize("name", ["configuration.md", "flags.md", "metrics.md", "trainerctl.md"])
def test_a_reference_explains_every_row(name: str) -> None:
    rows = [line for line in reference.pages()[name].splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_reference_of_trainerctl_has_every_command() -> None:
    text = reference.pages()["trainerctl.md"]
    for command in ("cluster up", "demo", "render", "explain", "validate", "group", "crds"):
        assert f"\n## trainerctl {command}\n" in text


def test_the_reference_of_the_api_has_every_field_and_its_links_lead_somewhere() -> None:
    text = reference.pages()["api.md"]
    sections = {name.lower() for name in re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    assert {"trainjob", "trainjobspec", "trainingruntimespec", "containeroverride"} <= sections
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= sections
    for field in TrainJobSpec.model_fields.values():
        assert f"| `{field.alias}` |" in text


PYTHON_BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    if "adr" not in path.parts  # the records of decisions contain fragments of users' code
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_python_in_documents_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")  # an exporter would start a thread
    before = set(threading.enumerate())
    exec(compile(block, "<document>", "exec"), {"__name__": "document"})
    # If a thread were left, the virtual clock of every later test would wait in real time for it.
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end meanwhile
