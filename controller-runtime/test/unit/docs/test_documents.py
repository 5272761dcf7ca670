# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The library's documents: Python blocks run, the reference covers the packages, and Trainer is not mentioned."""

import logging
import re
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "controller_runtime"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    )
]
NOT_DOCUMENTED = {"apis", "tools"}
"""Packages that operators do not import."""


@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_the_documents_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")  # an exporter would start a thread
    for logger in (logging.getLogger(), logging.getLogger("controller_runtime")):
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logger.level)
    before = set(threading.enumerate())
    exec(compile(block, "<document>", "exec"), {"__name__": "document"})
    # If a thread were left, the virtual clock of every later test would wait in real time for it.
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may end meanwhile


@pytest.mark.parametrize("block", [each for each in BLOCKS if "asyncio.run(main())" in str(each.values[0])])
def test_every_program_of_the_documents_writes_its_log(block: str) -> None:
    assert re.search(r"^    (ctrl\.)?log\.configure\(\)$", block, re.MULTILINE)


def test_the_reference_covers_every_package() -> None:
    directives = re.findall(
        r"^::: controller_runtime\.(\w+)",
        "".join(path.read_text() for path in ROOT.glob("docs/reference/*.md")),
        re.MULTILINE,
    )
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {"client", "cache"} <= packages
    assert packages - set(directives) == NOT_DOCUMENTED & packages


def test_the_guides_do_not_mention_trainer() -> None:
    assert [
        path.name
        for path in ROOT.glob("docs/**/*.md")
        if re.search("TrainJob|Kubeflow|KAI", path.read_text())
    ] == []
