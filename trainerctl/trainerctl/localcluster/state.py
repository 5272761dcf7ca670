# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The file with a cluster's state for later commands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from controller_runtime.envtest import Component, Probe, write_private
from controller_runtime.machinery import JSON

_FILE: Final = "cluster.json"


@dataclass(frozen=True)
class State:
    """The state of a started cluster for later commands."""

    server: str
    metrics: str
    nodes: int
    components: list[Component]
    """In the order of their start."""

    @property
    def names(self) -> list[str]:
        """The components' names."""
        return [component.name for component in self.components]

    def address_of(self, name: str) -> str:
        """Return the address of a component's server, or an empty string."""
        urls = [each.ready.url for each in self.components if each.name == name and each.ready is not None]
        return "/".join(urls[0].split("/")[:3]) if urls else ""

    @staticmethod
    def exists(directory: Path) -> bool:
        """Return True if a cluster was started here, even if its state cannot be read."""
        return (directory / _FILE).exists()

    def write(self, directory: Path) -> None:
        """Write the state; a cluster without it counts as not started."""
        write_private(directory / _FILE, json.dumps(asdict(self), indent=2, default=str) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the written state, or None if it does not exist or is unreadable."""
        try:
            kept = json.loads((directory / _FILE).read_bytes())
            components = [_component(**component) for component in kept.pop("components")]
            return cls(**kept, components=components)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _component(name: str, argv: list[str], ready: dict[str, JSON] | None, env: dict[str, str]) -> Component:
    return Component(name, argv, _probe(**ready) if ready else None, env)


def _probe(url: str, authority: str | None, client: list[str] | None) -> Probe:
    pair = (Path(client[0]), Path(client[1])) if client else None
    return Probe(url, Path(authority) if authority else None, pair)
