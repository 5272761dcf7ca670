# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A release is built in a clone, and each of its files is opened."""

import hashlib
import json
import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from ctrl_testkit.small import output_of

from hack import release
from testkit import charts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
IMAGE = "REGISTRY/trainer-controller-manager"


def run(*command: str | Path, cwd: Path) -> str:
    return output_of([*map(str, command)], cwd=cwd, env=os.environ, timeout=280)


@pytest.fixture(scope="module")
def version() -> str:
    return next(release.versions(ROOT))[1]


@pytest.fixture(scope="module")
def files(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of a release of the current commit, with a section for it in the changelogs."""
    clone, out = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("out") / "release"
    run("git", "clone", "--quiet", "--shared", ROOT, clone, cwd=ROOT)
    for name in ("CHANGELOG.md", "controller-runtime/CHANGELOG.md"):
        text = (clone / name).read_text()
        section = f"## Unreleased\n\n## {version} - 2026-01-02\n"
        (clone / name).write_text(
            text if f"## {version} - " in text else text.replace("## Unreleased\n", section, 1)
        )
    (clone / "release.env").write_text("REPOSITORY=https://REPOSITORY\nREGISTRY=REGISTRY\n")
    commit = [
        "git",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.com",
        "commit",
        "--quiet",
        "--all",
        "--allow-empty",
    ]
    run(*commit, "--message=release", cwd=clone)
    run(sys.executable, "-m", "hack.release", version, "--offline", "--output", out, cwd=clone)
    return out


def test_the_release_has_its_files_and_their_checksums(files: Path, version: str) -> None:
    houses = ("controller_runtime", "trainer_controller_manager", "trainerctl")
    vex = ".openvex/trainer-controller-manager.openvex.json"
    statements = json.loads((ROOT / vex).read_text())[
        "statements"
    ]  # OpenVEX has no document without a statement
    assert {each.name for each in files.iterdir()} == {
        "RELEASE_NOTES.md", "SHA256SUMS", "install.yaml", "runtimes.yaml",
        f"kubeflow-trainer-{version}.tgz", f"image-{version}.cdx.json",
        *([f"trainer-controller-manager-{version}.openvex.json"] if statements else []),
        *(f"{house}-{version}{end}" for house in houses for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")),
    }  # fmt: skip
    sums = {name: digest for digest, name in map(str.split, (files / "SHA256SUMS").read_text().splitlines())}
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files.iterdir()}
    assert found.pop("SHA256SUMS")
    assert sums == found


def test_a_wheel_from_the_source_distribution_is_the_released_wheel(files: Path, tmp_path: Path) -> None:
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
    ]
    run(*wheel, tmp_path, *files.glob("*.tar.gz"), cwd=tmp_path)
    for built in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(built) as ours, zipfile.ZipFile(files / built.name) as released:
            assert {each: ours.read(each) for each in ours.namelist()} == {
                each: released.read(each) for each in released.namelist()
            }
    assert len(list(tmp_path.glob("*.whl"))) == 3


def test_a_source_distribution_contains_the_packages_that_it_imports(files: Path) -> None:
    """Packages that are in no wheel, such as those for tests, are in the source distribution that uses them."""
    apart = {
        each.parent.name for house in release.HOUSES.values() for each in (ROOT / house).glob("*/__init__.py")
    }
    apart -= {"pkg", "controller_runtime", "trainerctl"}
    assert {"hack", "testkit", "ctrl_testkit"} <= apart
    for archive in files.glob("*.tar.gz"):
        with tarfile.open(archive) as source:
            modules = {each.name.partition("/")[2]: each for each in source if each.name.endswith(".py")}
            for name, module in modules.items():
                read = source.extractfile(module)
                assert read is not None
                for imported in re.findall(rb"^\s*(?:from|import) (\w+)", read.read(), re.MULTILINE):
                    package = imported.decode()
                    assert package not in apart or f"{package}/__init__.py" in modules, (archive.name, name)


def test_manifests_and_chart_have_the_image_of_the_release(files: Path, version: str) -> None:
    rendered = charts.template(files / f"kubeflow-trainer-{version}.tgz")
    for text in ((files / "install.yaml").read_text(), rendered):
        objects = list(filter(None, yaml.load_all(text, yaml.CSafeLoader)))
        (deployment,) = (each for each in objects if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"{IMAGE}:{version}"
        assert {"CustomResourceDefinition", "ValidatingWebhookConfiguration"} <= {
            each["kind"] for each in objects
        }
    kinds = {each["kind"] for each in yaml.load_all((files / "runtimes.yaml").read_text(), yaml.CSafeLoader)}
    assert kinds == {"ClusterTrainingRuntime"}
    with tarfile.open(files / f"kubeflow-trainer-{version}.tgz") as chart:
        assert "kubeflow-trainer/files/webhooks.yaml" in chart.getnames()


def test_the_bills_list_the_packages_of_the_locks(files: Path, version: str) -> None:
    def packages(name: str) -> dict[str, str]:
        components = json.loads((files / f"{name}-{version}.cdx.json").read_text())["components"]
        return {re.sub(r"[._]", "-", each["name"]).lower(): each["version"] for each in components}

    def pinned(lock: str) -> dict[str, str]:
        return dict(
            re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / f"requirements/{lock}.lock").read_text(), re.MULTILINE)
        )

    image, own = packages("image"), {"controller-runtime": version}
    assert image.pop("python").startswith("3.")
    assert image == pinned("image") | own
    library, manager = packages("controller_runtime"), packages("trainer_controller_manager")
    assert library.items() <= pinned("runtime").items()
    assert image.items() <= manager.items() <= (pinned("runtime") | own).items()
    assert {"rich", "trainer-controller-manager"} <= packages("trainerctl").keys()
    assert "hatchling" not in packages("trainerctl")
