# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of texts report each problem of a small repository with its line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack import texts

SOUND = {
    "README.md": "See [the map](docs/port-map.md) and `make demo`.\n",
    "Makefile": "demo: ## Show it\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n\n## 0.1.0 - 2026-01-02\n\n### Fixed\n\n- Two.\n",
    "controller-runtime/CHANGELOG.md": "## Unreleased\n",
    "controller-runtime/Makefile": "wheel: ## Build it\n",
    "controller-runtime/controller_runtime/tools/templates/Makefile.tmpl": "new: ## Make it\n",
    "docs/port-map.md": "",
}
WRONG = {
    "a link": (texts.links, "README.md", "See", "[x](docs/x.md#a)\nSee", 1, "leads to no file: docs/x.md"),
    "a target": (texts.make_targets, "README.md", "make demo", "make demo wheel", 1, "no target wheel"),
    "a section": (texts.changelogs, "CHANGELOG.md", "- One.", "- One.\n\n### Added", 9, "occurs once"),
    "an entry": (texts.changelogs, "CHANGELOG.md", "### Fixed\n", "", 12, "below a section"),
    "a line": (texts.changelogs, "CHANGELOG.md", "- Two.", "- One.", 13, "also occurs above"),
    "a date": (texts.changelogs, "CHANGELOG.md", " - 2026-01-02", "", 9, "a version and its date"),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in SOUND.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_sound_repository_has_no_problem(repository: Path) -> None:
    assert [each for check in texts.CHECKS for each in check(repository)] == []


@pytest.mark.parametrize(("check", "name", "old", "new", "line", "text"), WRONG.values(), ids=WRONG)
def test_a_problem_is_found_with_its_line(
    repository: Path,
    check: Callable[[Path], Iterator[texts.Problem]],
    name: str,
    old: str,
    new: str,
    line: int,
    text: str,
) -> None:
    path = repository / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert [each.line for each in check(repository) if text in each.text] == [line]


def test_a_problem_ends_the_command_with_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(texts, "ROOT", repository)
    assert texts.main() == 0
    (repository / "README.md").write_text("\n[x](y.md)\n")
    assert texts.main() == 1
    assert capsys.readouterr().out == "README.md:2: the link leads to no file: y.md\n"
