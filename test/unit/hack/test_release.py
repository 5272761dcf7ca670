# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A release is built from a clean checkout whose files agree on the version, and its notes are those of the changelogs."""

import copy
import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hack import release

ROOT = Path(__file__).parents[3]
MANAGER = "trainer-controller-manager"
CHANGELOG = """# Changelog

## Unreleased

### Added

- Three.

## 1.2.3 - 2026-01-02

### Fixed

- See [this page](docs/two.md#a), [that site](https://example.com/) and [below](#below).

## 1.2.2 - 2026-01-01

- One.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a clean checkout of version 1.2.3."""
    own = next(release.versions(ROOT))[1]
    for place, _ in release.versions(ROOT):
        name = place.partition(":")[0]
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text().replace(own, "1.2.3"))
    shutil.copy(ROOT / "release.env", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "controller-runtime/CHANGELOG.md").write_text(
        "## 1.2.3 - 2026-01-02\n\n- [Two](docs/x.md).\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=one"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    return tmp_path


def test_the_version_is_the_same_everywhere() -> None:
    found = list(release.versions(ROOT))
    assert len({version for _, version in found}) == 1, found
    places = Counter(place.partition(":")[0] for place, _ in found)
    assert {name for name in release.VERSIONS if "*" not in name} < set(places)
    assert any(name.startswith("docs/") for name in places)
    version = found[0][1]
    major, minor, _ = map(int, version.split("."))
    for house, needed in ((".", ["controller-runtime"]), ("trainerctl", ["controller-runtime", MANAGER])):
        project = tomllib.loads((ROOT / house / "pyproject.toml").read_text())["project"]
        wanted = {f"{name}>={major}.{minor},<{major}.{minor + 1}" for name in needed}
        assert wanted <= {*project["dependencies"]}
    manifests = [path.read_text() for path in ROOT.glob("config/**/kustomization.yaml")]
    tags = {tag for text in manifests for tag in re.findall(rf"{MANAGER}\n +newTag: (\d[\w.]*)", text)}
    assert tags == {version}


def test_a_clean_checkout_of_the_version_can_be_released(checkout: Path) -> None:
    release.check(checkout, "1.2.3")


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3.dev0", "latest"])
def test_what_is_no_version_is_refused(checkout: Path, version: str) -> None:
    with pytest.raises(release.ReleaseError, match=f"^'{version}' is not a version: make release VERSION="):
        release.check(checkout, version)


@pytest.mark.parametrize("name", [name for name in release.VERSIONS if "*" not in name])
def test_a_version_that_a_file_does_not_have_is_refused(checkout: Path, name: str) -> None:
    path = checkout / name
    path.write_text(path.read_text().replace("1.2.3", "1.2.4", 1))
    with pytest.raises(
        release.ReleaseError, match=rf"is not 1\.2\.3 everywhere: {re.escape(name)}:\d+ has 1\.2\.4$"
    ):
        release.check(checkout, "1.2.3")
    path.write_text("")
    with pytest.raises(release.ReleaseError, match=f"^{re.escape(name)} does not contain the version$"):
        release.check(checkout, "1.2.3")


@pytest.mark.parametrize("name", ["README.md", "new.txt"])
def test_a_checkout_with_changes_is_refused(checkout: Path, name: str) -> None:
    with (checkout / name).open("a") as file:
        file.write("\n")
    with pytest.raises(release.ReleaseError, match=f"changes that are not committed: .*{name}"):
        release.check(checkout, "1.2.3")


def test_the_notes_are_the_sections_of_the_version(checkout: Path) -> None:
    notes = release.notes(checkout, "1.2.3", "https://example.com/a/b")
    assert notes == (
        "### Fixed\n\n- See [this page](https://example.com/a/b/blob/v1.2.3/docs/two.md#a), "
        "[that site](https://example.com/) and [below](#below).\n\n"
        "## The library controller-runtime\n\n"
        "- [Two](https://example.com/a/b/blob/v1.2.3/controller-runtime/docs/x.md).\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", CHANGELOG.replace("## 1.2.3", "## 1.2.4")),
        ("", CHANGELOG.replace(" - 2026-01-02", "")),
        ("controller-runtime/", "## Unreleased\n"),
    ],
)
def test_a_version_without_a_dated_section_is_refused(checkout: Path, name: str, text: str) -> None:
    (checkout / name / "CHANGELOG.md").write_text(text)
    with pytest.raises(
        release.ReleaseError, match=rf"^{name}CHANGELOG.md has no section '1\.2\.3' with a date$"
    ):
        release.notes(checkout, "1.2.3", "")


def test_placeholders_are_in_one_file_and_listed_until_they_are_filled_in(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "SECURITY-INSIGHTS.yml", checkout)
    monkeypatch.setattr(release, "ROOT", checkout)
    (checkout / "release.env").write_text("REPOSITORY=https://REPOSITORY\nREGISTRY=REGISTRY\n")
    assert release.main([]) == 1
    assert [line.partition(" is a")[0] for line in capsys.readouterr().out.splitlines()] == [
        "release.env: REPOSITORY=https://REPOSITORY",
        "release.env: REGISTRY=REGISTRY",
    ]
    (checkout / "release.env").write_text(
        "REPOSITORY=https://git.example.com/a/b\nREGISTRY=r.example.com/a\n"
    )
    assert release.main([]) == 0
    text = release.insights(checkout)
    assert set(re.findall(r"https://\S+?/a/b", text)) == {"https://git.example.com/a/b"}
    assert text.count("https://") == (ROOT / "SECURITY-INSIGHTS.yml").read_text().count("https://")


def test_the_vex_file_is_openvex_as_soon_as_it_has_a_statement() -> None:
    read = json.loads((ROOT / ".openvex/trainer-controller-manager.openvex.json").read_text())
    assert {"@context", "@id", "author", "timestamp", "version", "statements"} == read.keys()
    assert read["@context"].startswith("https://openvex.dev/ns/v0.2")
    for each in read["statements"]:
        assert {"vulnerability", "products", "status"} <= each.keys()
        assert each["status"] in {"not_affected", "affected", "fixed", "under_investigation"}
        if each["status"] == "not_affected":
            assert len({"justification", "impact_statement"} & each.keys()) == 1
        assert each["status"] != "affected" or "action_statement" in each


BILL: dict[str, Any] = {
    "metadata": {"component": {"bom-ref": "own"}},
    "components": [{"bom-ref": "a"}, {"bom-ref": "b"}, {"bom-ref": "tool"}],
    "dependencies": [
        {"ref": "own", "dependsOn": ["a"]},
        {"ref": "a", "dependsOn": ["b"]},
        {"ref": "b", "dependsOn": ["a"]},
        {"ref": "tool"},
    ],
}


def test_a_bill_has_what_the_main_component_needs() -> None:
    found = release.needed(BILL)
    assert [each["bom-ref"] for each in found["components"]] == ["a", "b"]
    assert [each["ref"] for each in found["dependencies"]] == ["own", "a", "b"]


def test_the_bill_of_the_image_has_its_base_by_digest() -> None:
    bill = release.on_base(copy.deepcopy(BILL), (ROOT / "Containerfile").read_text())
    base = bill["components"][0]
    (digest,) = re.findall(
        r"(?m)^ARG PYTHON_IMAGE=\S+@sha256:(\w{64})$", (ROOT / "Containerfile").read_text()
    )
    assert (base["name"], base["hashes"]) == ("python", [{"alg": "SHA-256", "content": digest}])
    assert bill["dependencies"][0] == {"ref": "own", "dependsOn": [base["bom-ref"], "a"]}
    assert bill["dependencies"][-1] == {"ref": base["bom-ref"]}
