# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example of a grouper works as the documents say: its tests, its entry point and its groups."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from ctrl_testkit.small import output_of

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "mybigdata_grouper"
EXTENDING = (ROOT / "docs" / "extending.md").read_text()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder of packages in which the example is installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    packages = tmp_path / "packages"
    info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    shutil.copy(EXAMPLE / "mybigdata_grouper.py", packages)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return packages


def _run(*command: str, path: tuple[Path, ...] = (), cwd: Path = ROOT, code: int = 0) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (*path, ROOT / "trainerctl", ROOT)))
    return output_of([sys.executable, *command], cwd=cwd, env=environ, timeout=120, code=code)


def test_its_tests_pass_in_a_project_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "mybigdata_grouper"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("__pycache__"))

    assert "3 passed" in _run("-m", "pytest", "-p", "no:asyncio", "-W", "error", cwd=project)


def test_installed_it_groups_as_the_walk_through_shows(installed: Path) -> None:
    shown = _run("-m", "trainerctl", "group", "-f", str(EXAMPLE / "count.yaml"), path=(installed,))

    assert "minMember                    4  ← MyBigDataJob count: spec.replicas" in shown
    assert f"```text\n{shown.rstrip()}\n```" in EXTENDING


def test_one_that_does_not_load_is_told_by_name(installed: Path) -> None:
    (installed / "mybigdata_grouper.py").write_text("def groupers(default, reader):\n    return 7\n")
    error = _run("-m", "trainerctl", "group", "-f", str(EXAMPLE / "count.yaml"), path=(installed,), code=1)

    assert (
        "trainerctl: grouper mybigdata (mybigdata_grouper:groupers): not a mapping of kinds to groupers"
        in error
    )


def test_the_walk_through_shows_the_module_itself() -> None:
    module = re.sub(r"^(# SPDX.*\n)+", "", (EXAMPLE / "mybigdata_grouper.py").read_text())

    assert f"```python\n{module}```" in EXTENDING


def test_the_walk_through_shows_the_entry_point() -> None:
    declared = (EXAMPLE / "pyproject.toml").read_text()
    (block,) = re.findall(r'\[project\.entry-points\."kai.*?\n\n', declared, re.DOTALL)

    assert f"```toml\n{block.rstrip()}\n```" in EXTENDING
