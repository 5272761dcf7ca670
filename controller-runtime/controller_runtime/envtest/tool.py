# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that are built from a pinned Go module, and the cache directory of each version."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.gotoolchain import parse_version

_BUILD_RECIPE: Final = "1"  # increment it when a change of the build command makes older binaries wrong


@dataclass(frozen=True)
class ToolGroup:
    """A go.mod and go.sum, and the module in it whose version names the group."""

    directory: Path
    module: str

    @cached_property
    def _go_mod(self) -> str:
        return (self.directory / "go.mod").read_text(encoding="utf-8")

    @cached_property
    def version(self) -> str:
        """The pinned version of the module."""
        match = re.search(rf"^(?:require)?\s+{re.escape(self.module)} (v\S+)", self._go_mod, re.MULTILINE)
        if match is None:
            raise ToolError(f"{self.directory / 'go.mod'} does not require {self.module}")
        return match[1]

    @cached_property
    def go(self) -> tuple[int, int]:
        """The oldest Go that builds the group."""
        match = re.search(r"^go (\S+)$", self._go_mod, re.MULTILINE)
        version = parse_version(match[1]) if match else None
        if version is None:
            raise ToolError(f"{self.directory / 'go.mod'} has no go line")
        return version

    @cached_property
    def key(self) -> str:
        """The name of the group's directory in the cache."""
        digest = hashlib.sha256(f"{_BUILD_RECIPE}\n{self._go_mod}\n".encode())
        digest.update((self.directory / "go.sum").read_bytes())
        system = f"{sys.platform}-{platform.machine().lower()}"
        return f"{self.directory.name}-{self.version}-go{self.go[0]}.{self.go[1]}-{system}-{digest.hexdigest()[:12]}"


@dataclass(frozen=True)
class Tool:
    """A program of a group.

    ``manifests`` are patterns below the module's directory. The YAML documents that match are stored as JSON
    beside the binary.
    """

    name: str
    group: ToolGroup
    package: str
    symbols: Mapping[str, str] = field(default_factory=dict)
    tags: Sequence[str] = ()
    manifests: Sequence[str] = ()
