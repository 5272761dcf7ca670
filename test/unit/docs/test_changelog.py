# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The changelogs merge by union, which can repeat lines: each section and entry of a release occurs once."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHANGELOGS = [
    pytest.param((folder / "CHANGELOG.md").read_text(), id=folder.name)
    for folder in (ROOT, ROOT / "controller-runtime")
]
SECTIONS = ["Breaking", "Added", "Changed", "Security", "Fixed"]


def releases(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("text", CHANGELOGS)
def test_the_changes_of_the_next_release_come_first(text: str) -> None:
    names = list(releases(text))
    assert names[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", name) for name in names[1:])


@pytest.mark.parametrize("text", CHANGELOGS)
def test_a_release_has_each_section_once_and_in_order(text: str) -> None:
    for name, release in releases(text).items():
        sections = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert sections == [each for each in SECTIONS if each in sections], name


@pytest.mark.parametrize("text", CHANGELOGS)
def test_no_line_is_repeated(text: str) -> None:
    lines = [line for line in text.splitlines() if line and not line.startswith("###")]
    assert sorted({line for line in lines if lines.count(line) > 1}) == []


@pytest.mark.parametrize("text", CHANGELOGS)
def test_entries_stand_below_sections(text: str) -> None:
    for name, release in releases(text).items():
        assert "\n- " not in release.split("\n### ")[0], name
