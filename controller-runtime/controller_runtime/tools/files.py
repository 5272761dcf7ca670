# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write generated files. Files that already have the right text are not written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def stale(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Return the paths of the files in ``directory`` that are missing or have a different text."""
    return [
        directory / name
        for name, text in files.items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]


def write(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Write the files that are missing or differ, and return their paths. Other files in the directory stay."""
    changed = stale(directory, files)
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path.relative_to(directory).as_posix()], encoding="utf-8")
    return changed
