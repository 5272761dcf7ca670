# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The file in which a cluster keeps what later commands need."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.envtest import Component
from controller_runtime.envtest.files import write_private
from controller_runtime.envtest.probe import Probe

_FILE: Final = "cluster.json"


@dataclass(frozen=True)
class State:
    """What a cluster that has come up keeps for later commands."""

    server: str
    metrics: str
    nodes: int
    components: list[Component]
    """In the order of their start."""

    @property
    def names(self) -> list[str]:
        """The components' names."""
        return [component.name for component in self.components]

    @staticmethod
    def exists(directory: Path) -> bool:
        """Return True if a cluster has come up here, even if what it keeps cannot be read."""
        return (directory / _FILE).exists()

    def write(self, directory: Path) -> None:
        """Write the file without which a cluster has not come up."""
        write_private(directory / _FILE, json.dumps(asdict(self), indent=2, default=str) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return what `write` kept; nothing where no cluster came up."""
        try:
            kept = json.loads((directory / _FILE).read_bytes())
            components = [_component(**component) for component in kept.pop("components")]
            return cls(**kept, components=components)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def _component(name: str, argv: list[str], ready: dict[str, JSON] | None, env: dict[str, str]) -> Component:
    return Component(name, argv, _probe(**ready) if ready else None, env)


def _probe(url: str, authority: str | None, client: list[str] | None) -> Probe:
    pair = (Path(client[0]), Path(client[1])) if client else None
    return Probe(url, Path(authority) if authority else None, pair)
