# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The file in which a command stores a cluster's state for later commands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import msgspec
from controller_runtime.envtest import Component, write_private

from trainerctl.localcluster import names


@dataclass(frozen=True)
class State:
    """The state of a started cluster for later commands."""

    server: str
    metrics: str
    nodes: int
    components: list[Component]
    """In the order in which they are started."""

    @property
    def names(self) -> list[str]:
        return [component.name for component in self.components]

    def address_of(self, name: str) -> str:
        """Return the address of a component's server, or an empty string."""
        urls = [each.ready.url for each in self.components if each.name == name and each.ready is not None]
        return "/".join(urls[0].split("/")[:3]) if urls else ""

    @staticmethod
    def exists(directory: Path) -> bool:
        """Return True if a cluster was started here, even if its state cannot be read."""
        return (directory / names.STATE).exists()

    def write(self, directory: Path) -> None:
        """Write the state to its file. A cluster without this file counts as not started."""
        write_private(directory / names.STATE, json.dumps(asdict(self), indent=2, default=str) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the written state, or None if the file does not exist or is unreadable."""
        try:
            return msgspec.json.decode((directory / names.STATE).read_bytes(), type=cls, dec_hook=_path)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None


def _path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise TypeError(f"a path is expected, not {value!r}")
    return Path(value)
