# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The installed distributions: their entry points and versions.

The results are those of importlib.metadata, which is imported only where names of folders and files do not suffice:
it takes 2 MiB of memory for email, zipfile and csv.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_INFO: Final = ".dist-info"
_OTHER_INFO: Final = (".egg-info", ".egg", ".egg-link")
_STANDARD: Final = ("BuiltinImporter", "FrozenImporter", "PathFinder")


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of ``group`` in all installed distributions."""
    folders = _folders()
    if folders is not None and not any(_declares(folder, group) for folder in folders):
        return ()
    from importlib import metadata

    return tuple(metadata.entry_points(group=group))


def version(distribution: str, default: str = "unknown") -> str:
    """Return the version of a distribution; ``default`` if it is not installed."""
    wanted = re.sub(r"[-_.]+", "_", distribution).lower()
    for folder in _folders() or ():
        name, _, rest = folder.name.removesuffix(_INFO).partition("-")
        if re.sub(r"[-_.]+", "_", name).lower() == wanted and rest:
            return rest
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return default


def _folders() -> list[Path] | None:
    """Return the folders that describe distributions; None if there may be others, for instance in an archive."""
    if any(_finds_others(finder) for finder in sys.meta_path):
        return None
    found: list[Path] = []
    for path in map(Path, sys.path):
        try:
            entries = list(path.iterdir())
        except NotADirectoryError:
            return None
        except OSError:
            continue
        if any(entry.name.endswith(_OTHER_INFO) for entry in entries):
            return None
        found += (entry for entry in entries if entry.name.endswith(_INFO))
    return found


def _finds_others(finder: object) -> bool:
    return getattr(finder, "__name__", "") not in _STANDARD and hasattr(finder, "find_distributions")


def _declares(folder: Path, group: str) -> bool:
    try:
        text = (folder / "entry_points.txt").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.strip() == f"[{group}]" for line in text.splitlines())
