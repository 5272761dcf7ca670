# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of texts report each problem of a small repository with its line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack import parsers, texts

SOUND = {
    "README.md": "See [the map](docs/port-map.md) and `make demo`.\n",
    "Makefile": "demo: ## Show it\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n\n## 0.1.0 - 2026-01-02\n\n### Fixed\n\n- Two.\n",
    "controller-runtime/CHANGELOG.md": "## Unreleased\n",
    "controller-runtime/Makefile": "wheel: ## Build it\n",
    "controller-runtime/controller_runtime/tools/templates/Makefile.tmpl": "new: ## Make it\n",
    "docs/port-map.md": "",
    "docs/parsers.md": "\n## The texts\n\n| a | b | c | d | e |\n|---|---|---|---|---|\n"
    "| JSON | user | `pkg.util` | 1 KB | `test/test_util.py::test_long` |\n",
    "pkg/util.py": "import json\n\nTWO = json.loads('2')\n",
    "test/test_util.py": "def test_long(): ...\n",
}
NO_ONE = "no" + "body"  # in two parts, because the words of this file are counted as well
WRONG = {
    "a link": (texts.links, "README.md", "See", "[x](docs/x.md#a)\nSee", 1, "leads to no file: docs/x.md"),
    "a target": (texts.make_targets, "README.md", "make demo", "make demo wheel", 1, "no target wheel"),
    "a section": (texts.changelogs, "CHANGELOG.md", "- One.", "- One.\n\n### Added", 9, "occurs once"),
    "an entry": (texts.changelogs, "CHANGELOG.md", "### Fixed\n", "", 12, "below a section"),
    "a line": (texts.changelogs, "CHANGELOG.md", "- Two.", "- One.", 13, "also occurs above"),
    "a date": (texts.changelogs, "CHANGELOG.md", " - 2026-01-02", "", 9, "a version and its date"),
    "a word": (
        texts.words,
        "README.md",
        "`make",
        f"{NO_ONE}\n`make",
        1,
        f"{NO_ONE!r}: there are 1 such words",
    ),
    "a parser": (texts.parser_page, "docs/parsers.md", "`pkg.util`", "`pkg.x`", 1, "pkg.util parses text"),
    "a test": (
        texts.parser_page,
        "test/test_util.py",
        "test_long",
        "test_short",
        1,
        "test_util.py::test_long",
    ),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in SOUND.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_sound_repository_has_no_problem(repository: Path) -> None:
    assert [each for check in (*texts.CHECKS, *texts.ADVICE) for each in check(repository)] == []


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


def test_advice_is_printed_and_does_not_fail(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(texts, "ROOT", repository)
    (repository / "README.md").write_text(f"\n{NO_ONE}\n")
    assert texts.main() == 0
    assert capsys.readouterr().out == f"README.md:2: advice: {NO_ONE!r}: there are 1 such words, not 0\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("json.loads(text)", True),
        ("msgspec.json.Decoder(kind).decode", True),
        ("x509.load_pem_x509_certificate(pem)", True),
        ("re.compile(rf'a{b}')", True),
        ("re.compile(r'a' r'b')", False),
        ("def parse(text): ...", True),
        ("yaml.dump(value)", False),
    ],
)
def test_calls_of_parsers_are_found(text: str, expected: bool) -> None:
    assert parsers.parses(text) is expected
