# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Unpack a commit, to run its code or to edit it, beside the working tree."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve(commit: str) -> str:
    """Return the full hash of a commit. Raises ValueError if the commit does not exist."""
    done = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if done.returncode != 0:
        raise ValueError(f"{commit!r} is not a commit of {ROOT}")
    return done.stdout.decode().strip()


def unpack(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder. Unlike a worktree, the folder is not recorded by Git."""
    done = _git("archive", commit)
    done.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
