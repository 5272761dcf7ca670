# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Where a cluster keeps itself on disk, and what it remembers there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from pkg.ctrl.envtest.files import write_private
from pkg.ctrl.envtest.probe import Probe

DEFAULT_NAME: Final = "default"
_FILE: Final = "cluster.json"
_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


def state_directory(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the cluster called ``name``.

    Raises:
        ValueError: that is no name for a cluster.
    """
    if not _PATTERN.fullmatch(name):
        raise ValueError(
            f'"{name}" is no name for a cluster: lower-case letters, digits and dashes, up to 42'
        )
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "trainer-controller-manager" / "cluster" / name


@dataclass(frozen=True)
class State:
    """What a cluster that has come up keeps for later commands."""

    server: str
    metrics: str
    components: list[str]
    probes: dict[str, Probe]

    def write(self, directory: Path) -> None:
        """Keep it; a cluster without this file has not come up."""
        write_private(directory / _FILE, json.dumps(asdict(self), indent=2, default=str) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return what `write` kept; nothing where no cluster came up."""
        try:
            kept = json.loads((directory / _FILE).read_bytes())
            probes = {name: _probe(**probe) for name, probe in kept.pop("probes").items()}
            return cls(**kept, probes=probes)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def _probe(url: str, authority: str | None, client: list[str] | None) -> Probe:
    pair = (Path(client[0]), Path(client[1])) if client else None
    return Probe(url, Path(authority) if authority else None, pair)
