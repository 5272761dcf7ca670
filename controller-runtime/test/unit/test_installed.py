# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Installed distributions are found as importlib.metadata finds them."""

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from controller_runtime import installed


def distribution(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)


def test_entry_points_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    distribution(tmp_path, "other", "1.0", "[console_scripts]\nx = other:plugins\n")
    assert installed.entry_points("plugins") == ()
    distribution(
        tmp_path, "mine", "2.0", "[console_scripts]\nx = a:b\n\n  [plugins]  \nA = mine.module:new\n"
    )
    (found,) = installed.entry_points("plugins")
    assert (found.name, found.value, found.group) == ("A", "mine.module:new", "plugins")
    assert installed.entry_points("plug") == ()


@pytest.mark.parametrize("kind", ["archive", "egg"])
def test_entry_points_outside_of_folders_of_distributions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "[plugins]\nA = mine.module:new\n"
    path = tmp_path
    if kind == "archive":
        path = tmp_path / "archive.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
            archive.writestr("mine-1.dist-info/entry_points.txt", text)
    else:
        info = tmp_path / "mine.egg-info"
        info.mkdir()
        (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        (info / "entry_points.txt").write_text(text)
    monkeypatch.setattr(sys, "path", [str(path)])
    assert [each.name for each in installed.entry_points("plugins")] == ["A"]
    assert installed.version("mine") == "1"


def test_entry_points_of_another_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *_: object) -> None:
            return None

        def find_distributions(self, context: object = None) -> list[importlib.metadata.Distribution]:
            return []

    asked: list[str] = []

    def entry_points(*, group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
        asked.append(group)
        return ()

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert installed.entry_points("plugins") == ()
    assert asked == ["plugins"]


@pytest.mark.parametrize("name", ["controller-runtime", "Controller_Runtime", "pydantic", "pytest"])
def test_a_version_is_that_of_the_distribution(name: str) -> None:
    assert installed.version(name) == importlib.metadata.version(name)


def test_the_version_of_a_missing_distribution_is_the_default() -> None:
    assert installed.version("no-such-distribution") == "unknown"
    assert installed.version("no-such-distribution", "0") == "0"
