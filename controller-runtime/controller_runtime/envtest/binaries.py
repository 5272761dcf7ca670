# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Find the control plane's binaries, or build them from pinned Go modules.

A `ToolGroup` is a directory with a go.mod and a go.sum; each `Tool` is a program of a module that it
pins. A binary comes, in this order, from the directory that ``KUBEBUILDER_ASSETS`` names, from the cache, or
from a build that fills the cache. If ``KUBEBUILDER_ASSETS`` is set but unusable, this is an error; nothing is built
instead. The cache key consists of the tool's version, the Go release line that its go.mod requires, the platform,
and the text of go.mod and go.sum. A second run therefore builds nothing and needs no Go, and an upgrade keeps the
old binaries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from controller_runtime.envtest.building import Build, batches, clear_partial, dependencies, title
from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.gotoolchain import find_go
from controller_runtime.envtest.locks import file_lock
from controller_runtime.envtest.progress import Progress, SilentProgress
from controller_runtime.envtest.tool import Tool

if TYPE_CHECKING:
    from controller_runtime.apis.machinery.base import JSON

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_PROGRAM: Final = "controller-runtime"
_FORMER_PROGRAM: Final = "trainer-controller-manager"
"""The cache directory's name since before release 0.2, so that binaries built then are reused."""


@dataclass(frozen=True)
class Binary:
    """A program on this machine."""

    path: Path
    manifests_path: Path | None = None

    def manifests(self) -> list[dict[str, JSON]]:
        """Return the documents that the tool's module ships, newly decoded in each call."""
        if self.manifests_path is None:
            return []
        documents: list[dict[str, JSON]] = json.loads(self.manifests_path.read_bytes())
        return documents


def cache_directory(environ: Mapping[str, str] | None = None, *, program: str = _PROGRAM) -> Path:
    """Return the cache directory of ``program`` for binaries and other build results."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / program


class Binaries:
    """Finds tools, and builds the missing ones, those of one group at the same time.

    Several processes may request the same tool at once: one builds it, the others wait.
    """

    def __init__(
        self,
        *,
        cache: Path | None = None,
        progress: Progress | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._cache = cache or cache_directory(self._environ)
        self._former = None if cache else cache_directory(self._environ, program=_FORMER_PROGRAM)
        self._progress = progress or SilentProgress()

    def missing(self, *tools: Tool) -> list[Tool]:
        """Return the tools that `locate` would build.

        Raises:
            ToolError: ``KUBEBUILDER_ASSETS`` names a directory that is missing or contains none of the tools.
        """
        found = self._from_assets(tools)
        return [tool for tool in tools if tool.name not in found and self._from_cache(tool) is None]

    async def locate(self, *tools: Tool) -> dict[str, Binary]:
        """Return each tool's binary by the tool's name.

        Raises:
            ToolError: a tool is missing and cannot be built, or ``KUBEBUILDER_ASSETS`` names a directory that is
                missing or contains none of the tools. The message gives the reason in one line.
        """
        found = self._from_assets(tools)
        for tool in tools:
            if tool.name not in found and (cached := self._from_cache(tool)) is not None:
                found[tool.name] = cached
        builds = batches([tool for tool in tools if tool.name not in found])
        failed: ToolError | None = None
        compiling = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._download, builds[1:], compiling)
            try:
                for number, batch in enumerate(builds, 1):
                    place = f" ({number} of {len(builds)})" if len(builds) > 1 else ""
                    found |= await self._build(batch, f"build {title(batch)}{place}", compiling)
            except ToolError as error:
                failed = error
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return {tool.name: found[tool.name] for tool in tools}

    async def _download(self, later: Sequence[Sequence[Tool]], compiling: anyio.Event) -> None:
        """Download the modules of later builds while the first one compiles; a build reports what fails here."""
        await compiling.wait()
        for batch in later:
            with suppress(ToolError, OSError):
                go = await find_go(batch[0].group.go, self._cache, SilentProgress(), self._environ)
                await dependencies(batch, go, self._environ)

    def _from_assets(self, tools: Sequence[Tool]) -> dict[str, Binary]:
        named = self._environ.get(ASSETS_VARIABLE, "")
        if not named:
            return {}
        assets = Path(named)
        if not assets.is_dir():
            raise ToolError(f"{ASSETS_VARIABLE}: {assets} is not a directory")
        # The assets directory contains only programs, so a tool that ships manifests is never taken from it.
        wanted = [tool.name for tool in tools if not tool.manifests]
        found = [name for name in wanted if (assets / name).is_file()]
        if wanted and not found:
            raise ToolError(f"{ASSETS_VARIABLE}: {assets} contains none of {', '.join(wanted)}")
        for name in found:
            if not os.access(assets / name, os.X_OK):
                raise ToolError(f"{ASSETS_VARIABLE}: {assets / name} is not executable")
        return {name: Binary(assets / name) for name in found}

    def _from_cache(self, tool: Tool) -> Binary | None:
        for cache in filter(None, (self._cache, self._former)):
            binary = _cached(tool, cache / "bin" / tool.group.key)
            if binary is not None:
                return binary
        return None

    async def _build(self, batch: Sequence[Tool], task: str, compiling: anyio.Event) -> dict[str, Binary]:
        """Build the programs of one batch, those of them that no other process builds at this moment."""
        directory = self._cache / "bin" / batch[0].group.key

        def waiting() -> None:
            self._progress.update(task, detail="another process is building")

        self._progress.start(task)
        try:
            async with file_lock(directory.parent / f"{directory.name}.lock", waiting=waiting):
                if missing := [tool for tool in batch if _cached(tool, directory) is None]:
                    clear_partial(directory)
                    go = await find_go(batch[0].group.go, self._cache, self._progress, self._environ)
                    await Build(missing, directory, go, self._environ, self._progress, task).run(compiling)
        except ToolError as error:
            self._progress.fail(task, str(error))
            raise ToolError(f"cannot build {title(batch)}: {error}") from error
        self._progress.finish(task, "ready")
        built = {tool.name: _cached(tool, directory) for tool in batch}
        if None in built.values():
            raise ToolError(f"cannot build {title(batch)}: {directory} stayed empty")
        return {name: binary for name, binary in built.items() if binary is not None}


def _cached(tool: Tool, directory: Path) -> Binary | None:
    path, manifests = directory / tool.name, directory / f"{tool.name}.json"
    if not path.is_file() or (tool.manifests and not manifests.is_file()):
        return None
    return Binary(path, manifests if tool.manifests else None)
