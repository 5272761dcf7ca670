# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An example is a file that users can copy: short, listed, and without code of Trainer."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
ELSEWHERE = sorted(EXAMPLES.glob("envtest_pytest/*.py"))
OURS = re.compile(r"controller_runtime(\..*)?")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign(path: Path, *, also: frozenset[str] = frozenset()) -> list[str]:
    allowed = sys.stdlib_module_names | also
    return [name for name in imported(path) if not OURS.fullmatch(name) and name.split(".")[0] not in allowed]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_needs_the_controller_runtime_and_nothing_else(path: Path) -> None:
    assert foreign(path) == []


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.name)
def test_the_test_suite_needs_pytest_besides(path: Path) -> None:
    assert foreign(path, also=frozenset({"pytest", path.parent.name, "labeller"})) == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_program_is_listed_and_run(path: Path) -> None:
    assert f"[{path.name}]({path.name})" in (EXAMPLES / "README.md").read_text()
    assert f'"{path.stem}"' in (EXAMPLES.parent / "test/integration/examples/test_examples.py").read_text()
