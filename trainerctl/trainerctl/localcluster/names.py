# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The names of local clusters and the directories that belong to them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_NAME: Final = "default"
STATE: Final = "cluster.json"
"""The file in a cluster's directory with the state of the cluster, which :mod:`.state` reads and writes."""
REMOVED: Final = "removed-pods"
"""The folder in a cluster's directory in which removed pods are kept."""
DEMO_NAME: Final = "demo"
"""The name of the temporary cluster of ``trainerctl demo``."""
_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


def check(name: str) -> None:
    """Raise ValueError if ``name`` is not a valid name for a cluster."""
    if not _PATTERN.fullmatch(name):
        raise ValueError(
            f'"{name}" is not a valid name for a cluster: use at most 42 lower-case letters, digits and dashes'
        )


def state_directory(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the cluster called ``name``.

    Raises:
        ValueError: ``name`` is not a valid name, or the home directory is unknown.
    """
    check(name)
    return root_directory(environ) / name


def root_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory that contains the directories of all clusters.

    Raises:
        ValueError: the home directory is unknown.
    """
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME", "")
    try:
        root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ValueError("the home directory is unknown: set HOME or XDG_STATE_HOME") from error
    return root / "trainer-controller-manager" / "cluster"


def server_of(directory: Path) -> str:
    """Return the address of the API server of the cluster with this directory, or an empty string if it has none."""
    try:
        state = json.loads((directory / STATE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    found = state.get("server") if isinstance(state, dict) else None
    return found if isinstance(found, str) else ""
