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

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from controller_runtime.envtest.commands import run_lines
from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.gotoolchain import Go, find_go, parse_version
from controller_runtime.envtest.locks import file_lock
from controller_runtime.envtest.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from controller_runtime.apis.machinery.base import JSON

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_PROGRAM: Final = "controller-runtime"
_FORMER_PROGRAM: Final = "trainer-controller-manager"
"""The cache directory's name since before release 0.2, so that binaries built then are reused."""
_BUILD_RECIPE: Final = "1"  # increment it when a change of the build command changes the binary


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
    """Finds tools, and builds the missing ones one after the other.

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

    async def locate(self, *tools: Tool) -> dict[str, Binary]:
        """Return each tool's binary by the tool's name.

        Raises:
            ToolError: a tool is missing and cannot be built, or ``KUBEBUILDER_ASSETS`` names a directory that is
                missing or contains none of the tools. The message gives the reason in one line.
        """
        found = self._from_assets(tools)
        return {tool.name: found.get(tool.name) or await self._from_cache(tool) for tool in tools}

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

    async def _from_cache(self, tool: Tool) -> Binary:
        directory = self._cache / "bin" / tool.group.key
        binary = _cached(tool, directory)
        if binary is None and self._former is not None:
            binary = _cached(tool, self._former / "bin" / tool.group.key)
        if binary is not None:
            return binary
        task = f"build {tool.name} {tool.group.version}"

        def waiting() -> None:
            self._progress.update(task, detail="another process is building")

        self._progress.start(task)
        try:
            async with file_lock(directory.parent / f"{directory.name}.lock", waiting=waiting):
                binary = _cached(tool, directory)
                if binary is None:
                    _clear_partial(directory)
                    go = await find_go(tool.group.go, self._cache, self._progress, self._environ)
                    await self._build(tool, directory, go, task)
        except ToolError as error:
            self._progress.fail(task, str(error))
            raise ToolError(f"cannot build {tool.name} {tool.group.version}: {error}") from error
        self._progress.finish(task, "ready")
        binary = binary or _cached(tool, directory)
        if binary is None:
            raise ToolError(f"cannot build {tool.name} {tool.group.version}: {directory} stayed empty")
        return binary

    async def _build(self, tool: Tool, directory: Path, go: Go, task: str) -> None:
        tags = [f"-tags={','.join(tool.tags)}"] if tool.tags else []
        total = len(await self._go(go, tool, task, ["list", "-deps", *tags, tool.package]))
        seen = 0

        def compiled(line: str) -> None:
            nonlocal seen
            if not line.startswith("go: "):
                seen = min(seen + 1, total)
            self._progress.update(task, done=seen, total=total, detail=line[:80])

        symbols = " ".join(f"-X {name}={value}" for name, value in tool.symbols.items())
        partial = directory / f".{tool.name}.partial"
        arguments = ["build", "-v", "-p", str(min(os.cpu_count() or 1, 4)), "-trimpath", *tags, "-ldflags"]
        arguments += [f"-s -w {symbols}".strip(), "-o", str(partial), tool.package]
        await self._go(go, tool, task, arguments, compiled)
        if tool.manifests:
            out = await self._go(go, tool, task, ["list", "-m", "-f", "{{.Dir}}", tool.group.module])
            manifests = directory / f".{tool.name}.json.partial"
            _collect(Path(out[0]), tool.manifests, manifests)
            manifests.replace(directory / f"{tool.name}.json")
        _note_go(directory, tool, go)
        partial.replace(directory / tool.name)

    async def _go(
        self,
        go: Go,
        tool: Tool,
        task: str,
        arguments: list[str],
        on_line: Callable[[str], None] | None = None,
    ) -> list[str]:
        code, out, err = await run_lines(
            [str(go.binary), *arguments],
            cwd=tool.group.directory,
            env=go.environment(self._environ),
            on_line=on_line or (lambda line: self._progress.update(task, detail=line[:80])),
        )
        if code != 0:
            raise ToolError(f"{' '.join(['go', arguments[0]])} failed: {_reason(err) or f'exit code {code}'}")
        return out


def _cached(tool: Tool, directory: Path) -> Binary | None:
    path, manifests = directory / tool.name, directory / f"{tool.name}.json"
    if not path.is_file() or (tool.manifests and not manifests.is_file()):
        return None
    return Binary(path, manifests if tool.manifests else None)


def _clear_partial(directory: Path) -> None:
    """Create the group's directory and remove the remains of an interrupted build; the caller holds the lock."""
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(".*.partial"):
        left.unlink()


def _collect(module: Path, patterns: Sequence[str], target: Path) -> None:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents: list[JSON] = []
    for pattern in patterns:
        files = sorted(module.glob(pattern))
        if not files:
            raise ToolError(f"{module} has no {pattern}")
        for file in files:
            with file.open(encoding="utf-8") as stream:
                documents += [document for document in yaml.load_all(stream, Loader=loader) if document]
    target.write_text(json.dumps(documents), encoding="utf-8")


def _note_go(directory: Path, tool: Tool, go: Go) -> None:
    note = {"go": go.version, "package": tool.package, "version": tool.group.version}
    (directory / f"{tool.name}.build.json").write_text(json.dumps(note) + "\n", encoding="utf-8")


def _reason(lines: Sequence[str]) -> str:
    """Return the last line of a failed ``go`` run that is not a progress message."""
    messages = [line.strip() for line in lines if line.strip() and not line.startswith("go: downloading ")]
    return messages[-1] if messages else ""
