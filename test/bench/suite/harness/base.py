# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Measure an earlier commit as the alternative, to find out whether a change makes the manager more expensive.

CPU, requests and memory have targets. Rates and quantiles depend on the API server and the machine, and are only shown.
"""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from harness import interpreter
from harness.figures import Figure
from harness.interpreter import ROOT
from harness.plan import MODERATE, Entrant

WORKLOADS: Final = ("burst", "status", "pod_grouping")
SIZES: Final = dataclasses.replace(MODERATE, jobs=(1_000,), few=50)
ROUNDS: Final = 5
TARGET: Final = "ratio ≤ 1.05"
_PHASES: Final = ("burst.torch.*", "status.torch.*", "pod_grouping.burst")
_BINDING: Final = (
    "burst.idle.rss",
    "pod_grouping.idle.rss",
    *(f"{phase}.{what}" for phase in _PHASES for what in ("manager_cpu", "requests", "rss")),
)
_SHOWN: Final = (
    *(f"{phase}.{what}" for phase in _PHASES for what in ("rate", "p50", "p99", "others")),
    "cold_start.*",
    "scale.*",
)
_LOCK: Final = "requirements/runtime.lock"
_START: Final = """
import sysconfig
from harness import interpreter, plan
interpreter.compile_as_image()
it = plan.Plan(1)
print(it.managers[0].command, it.groupers[0].command, sysconfig.get_path("purelib"), sep="\\n")
"""


def resolve(commit: str) -> str:
    """Return the full hash of a commit. Raises ValueError if the commit does not exist."""
    parse = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    done = subprocess.run(parse, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{commit!r} is not a commit of {ROOT}")
    return done.stdout.strip()


def entrants(commit: str) -> tuple[Entrant, Entrant]:
    """Return the manager and the pod grouper of a commit, with the commands that the commit's own bench uses.

    They use the packages of the commit's image, from this environment. If the commit pins other packages, an environment
    is made for these.

    Raises:
        ValueError: there is no such commit.
    """
    full = resolve(commit)
    root = ROOT / "build/bench" / f"base-{full[:12]}"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent) as folder:
            # Unlike a worktree, these files are not recorded by Git.
            archive = subprocess.run(["git", "archive", full], cwd=ROOT, stdout=subprocess.PIPE, check=True)
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                files.extractall(Path(folder) / "unpacked", filter="data")
            (Path(folder) / "unpacked").rename(root)
    python = sys.executable
    if (root / _LOCK).read_bytes() != (ROOT / _LOCK).read_bytes():
        python = str(root / ".venv/bin/python")
        subprocess.run([sys.executable, "-m", "venv", root / ".venv"], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--require-hashes", "-r", _LOCK], cwd=root, check=True)
        # The library reads its version from its package's metadata.
        houses = [argument for house in ("controller-runtime", ".") for argument in ("--editable", house)]
        subprocess.run([*install, "--no-build-isolation", *houses], cwd=root, check=True)
    own = (root / "test/bench/suite", root, root / "controller-runtime", root / "trainerctl")
    suite = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, own))}
    done = subprocess.run(
        [python, "-P", "-c", _START], cwd=root, env=suite, stdout=subprocess.PIPE, text=True, check=True
    )
    manager, grouper, installed = done.stdout.splitlines()
    if (
        installed in manager
    ):  # at some commits, the bench let the programs find all packages of the environment
        packages = root / "packages"
        interpreter.link_packages(root / "requirements/image.lock", installed, packages)
        manager, grouper = (each.replace(installed, str(packages)) for each in (manager, grouper))
        interpreter.compile_for(manager.partition(" -m ")[0])
    return Entrant(full[:8], manager, ours=True), Entrant(full[:8], grouper, ours=True)


def judged(found: Sequence[Figure]) -> list[Figure]:
    """Return the figures that have a target, with the target, and then those that are only shown."""

    def like(patterns: Sequence[str]) -> list[Figure]:
        return [each for each in found if any(fnmatchcase(each.name, pattern) for pattern in patterns)]

    return [dataclasses.replace(each, target=TARGET) for each in like(_BINDING)] + like(_SHOWN)
