# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Find the control plane's programs, or build them from pinned Go modules.

A `ToolGroup` is a directory with a go.mod and a go.sum. Each `Tool` is a program in a module that the go.mod pins.

A tool is looked up first in the directory ``KUBEBUILDER_ASSETS``, then in the cache. If neither has it, it is built and
added to the cache. It is an error if ``KUBEBUILDER_ASSETS`` is set but cannot be used. With ``ENVTEST_BUILD=never``, it
is an error if a tool would have to be built.

The cache key consists of the tool's version, the Go release line that its go.mod requires, the platform, and the text
of go.mod and go.sum. A second run therefore builds nothing and does not need Go. After an upgrade, the old binaries
stay in the cache. All missing programs of one go.mod are built by one ``go build``, so that Go can compile and link
them in parallel.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.files import file_lock
from controller_runtime.envtest.gotoolchain import Go, find_go, parse_version
from controller_runtime.envtest.progress import Progress
from controller_runtime.machinery import yaml

if TYPE_CHECKING:
    from controller_runtime.machinery import JSON

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
BUILD_VARIABLE: Final = "ENVTEST_BUILD"
NEVER: Final = "never"
_PROGRAM: Final = "controller-runtime"
_BUILD_RECIPE: Final = "1"  # increment it when a change of the build command makes older binaries wrong
_PARTIAL: Final = ".partial"
_OPTIMIZED: Final = ("std", "golang.org/...", "google.golang.org/...", "go.etcd.io/...", "sigs.k8s.io/...")
"""The compiler inlines calls only in these packages, because servers spend most of their time there."""
_FLAGS: Final = (
    "-gcflags=all=-dwarf=false -l",
    *(f"-gcflags={pattern}=-dwarf=false" for pattern in _OPTIMIZED),
)
"""Compiler flags, the same for every program: each set of flags would need its own build cache.

The compiler writes no debug information, which the linker would drop anyway: this saves 14 % of the CPU time. Without
inlining, compiling takes another 17 % less. ``-trimpath`` is not set, because groups could then not share the compiled
packages of modules that they all replace with the same version.
"""


@dataclass(frozen=True)
class ToolGroup:
    """The programs of one go.mod and go.sum. The version of the group is the version of ``module`` in the go.mod."""

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

    ``manifests`` are glob patterns for YAML files in the module. Their documents are stored as JSON beside the binary.
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
    """Finds tools, and builds the missing ones. The missing tools of one group are built together.

    If several processes request the same tool at the same time, one of them builds it and the others wait.
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
        self._progress = progress or Progress()

    def missing(self, *tools: Tool) -> list[Tool]:
        """Return the tools that `locate` would have to build.

        Raises:
            ToolError: ``KUBEBUILDER_ASSETS`` is not a directory, contains none of the tools, or contains a tool that is
                not executable.
        """
        binaries = self._from_assets(tools)
        return [tool for tool in tools if tool.name not in binaries and self._from_cache(tool) is None]

    async def locate(self, *tools: Tool) -> dict[str, Binary]:
        """Return the binary of each tool, by the tool's name. Build the missing ones.

        Raises:
            ToolError: a tool cannot be built, or must not be built (``ENVTEST_BUILD=never``), or ``KUBEBUILDER_ASSETS``
                cannot be used (see `missing`). The message gives the reason in one line.
        """
        binaries = self._from_assets(tools)
        for tool in tools:
            if tool.name not in binaries and (cached := self._from_cache(tool)) is not None:
                binaries[tool.name] = cached
        builds = _batches([tool for tool in tools if tool.name not in binaries])
        if builds and self._environ.get(BUILD_VARIABLE) == NEVER:
            titles = ", ".join(map(_title, builds))
            raise ToolError(f"{titles} must be built, but {BUILD_VARIABLE} is {NEVER}")
        failed: ToolError | None = None
        compiling = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._download, builds[1:], compiling)
            try:
                for number, batch in enumerate(builds, 1):
                    place = f" ({number} of {len(builds)})" if len(builds) > 1 else ""
                    binaries |= await self._build(batch, f"build {_title(batch)}{place}", compiling)
            except ToolError as error:
                failed = error
            tasks.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return {tool.name: binaries[tool.name] for tool in tools}

    async def _download(self, later: Sequence[Sequence[Tool]], compiling: anyio.Event) -> None:
        """Download the modules of later builds while the first build compiles.

        Errors are ignored here, because the later builds report them.
        """
        await compiling.wait()
        for batch in later:
            with suppress(ToolError, OSError):
                go = await find_go(batch[0].group.go, self._cache, Progress(), self._environ)
                await _dependencies(batch, go)

    def _from_assets(self, tools: Sequence[Tool]) -> dict[str, Binary]:
        named = self._environ.get(ASSETS_VARIABLE, "")
        if not named:
            return {}
        assets = Path(named)
        if not assets.is_dir():
            raise ToolError(f"{ASSETS_VARIABLE}: {assets} is not a directory")
        # The assets directory contains only programs, so a tool that ships manifests is never taken from it.
        wanted = [tool.name for tool in tools if not tool.manifests]
        present = [name for name in wanted if (assets / name).is_file()]
        if wanted and not present:
            raise ToolError(f"{ASSETS_VARIABLE}: {assets} contains none of {', '.join(wanted)}")
        for name in present:
            if not os.access(assets / name, os.X_OK):
                raise ToolError(f"{ASSETS_VARIABLE}: {assets / name} is not executable")
        return {name: Binary(assets / name) for name in present}

    def _from_cache(self, tool: Tool) -> Binary | None:
        return _cached(tool, self._cache / "bin" / tool.group.key)

    async def _build(self, batch: Sequence[Tool], task: str, compiling: anyio.Event) -> dict[str, Binary]:
        """Build the programs of one batch. If another process is building them, wait until it has finished."""
        directory = self._cache / "bin" / batch[0].group.key

        def waiting() -> None:
            self._progress.update(task, detail="another process is building")

        self._progress.start(task)
        try:
            async with file_lock(directory.parent / f"{directory.name}.lock", waiting=waiting):
                if missing := [tool for tool in batch if _cached(tool, directory) is None]:
                    directory.mkdir(parents=True, exist_ok=True)
                    for left in directory.glob(f".*{_PARTIAL}"):
                        shutil.rmtree(left) if left.is_dir() else left.unlink()
                    go = await find_go(batch[0].group.go, self._cache, self._progress, self._environ)
                    await _Build(missing, directory, go, self._progress, task).run(compiling)
        except ToolError as error:
            self._progress.fail(task, str(error))
            raise ToolError(f"cannot build {_title(batch)}: {error}") from error
        self._progress.finish(task, "ready")
        built = {tool.name: _cached(tool, directory) for tool in batch}
        if None in built.values():
            raise ToolError(f"cannot build {_title(batch)}: {directory} stayed empty")
        return {name: binary for name, binary in built.items() if binary is not None}


def _cached(tool: Tool, directory: Path) -> Binary | None:
    path, manifests = directory / tool.name, directory / f"{tool.name}.json"
    if not path.is_file() or (tool.manifests and not manifests.is_file()):
        return None
    return Binary(path, manifests if tool.manifests else None)


def _batches(tools: Sequence[Tool]) -> list[list[Tool]]:
    """Return the tools in batches: one ``go build`` can build each batch."""
    batches: dict[object, list[Tool]] = {}
    for tool in tools:
        batches.setdefault((tool.group, *sorted(tool.symbols.items()), *tool.tags), []).append(tool)
    return list(batches.values())


def _title(batch: Sequence[Tool]) -> str:
    """Return the programs' names and their version."""
    return f"{', '.join(tool.name for tool in batch)} {batch[0].group.version}"


@dataclass(frozen=True)
class _Build:
    """One ``go build``, which puts the programs into ``directory``."""

    batch: Sequence[Tool]
    directory: Path
    go: Go
    progress: Progress
    task: str

    async def run(self, compiling: anyio.Event) -> None:
        """Build the programs and put them into the cache. Set ``compiling`` when all modules have been downloaded.

        Raises:
            ToolError: a Go command failed. The message contains the last line of its output.
        """
        first = self.batch[0]
        total = len(await _dependencies(self.batch, self.go, self._detail))
        compiling.set()
        seen = 0

        def compiled(line: str) -> None:
            nonlocal seen
            if not line.startswith("go: "):
                seen = min(seen + 1, total)
            self.progress.update(self.task, done=seen, total=total, detail=line[:80])

        symbols = " ".join(f"-X {name}={value}" for name, value in first.symbols.items())
        partial = Path(tempfile.mkdtemp(prefix=".", suffix=_PARTIAL, dir=self.directory))
        arguments = [
            "build",
            "-v",
            "-p",
            str(min(os.cpu_count() or 1, 4)),
            *_FLAGS,
            *_tags(self.batch),
            "-ldflags",
        ]
        arguments += [f"-s -w {symbols}".strip(), "-o", f"{partial}{os.sep}"]
        arguments += [tool.package for tool in self.batch]
        await self.go.run(arguments, cwd=first.group.directory, on_line=compiled)
        for tool in self.batch:
            await self._place(tool, partial)
        shutil.rmtree(partial)

    async def _place(self, tool: Tool, partial: Path) -> None:
        """Move a program into the cache. Before that, write its manifests and the record of its build."""
        if tool.manifests:
            arguments = ["list", "-m", "-f", "{{.Dir}}", tool.group.module]
            out = await self.go.run(arguments, cwd=tool.group.directory, on_line=self._detail)
            manifests = partial / f"{tool.name}.json"
            _collect(Path(out[0]), tool.manifests, manifests)
            manifests.replace(self.directory / manifests.name)
        note = {"go": self.go.version, "package": tool.package, "version": tool.group.version}
        (self.directory / f"{tool.name}.build.json").write_text(json.dumps(note) + "\n", encoding="utf-8")
        (partial / executable(tool.package)).replace(self.directory / tool.name)

    def _detail(self, line: str) -> None:
        self.progress.update(self.task, detail=line[:80])


async def _dependencies(
    batch: Sequence[Tool], go: Go, on_line: Callable[[str], None] | None = None
) -> list[str]:
    """Return the packages from which the programs are built. Go downloads missing modules.

    Raises:
        ToolError: Go failed. The message contains the last line of its output.
    """
    arguments = ["list", "-deps", *_tags(batch), *(tool.package for tool in batch)]
    return await go.run(arguments, cwd=batch[0].group.directory, on_line=on_line)


def _tags(batch: Sequence[Tool]) -> list[str]:
    return [f"-tags={','.join(batch[0].tags)}"] if batch[0].tags else []


def executable(package: str) -> str:
    """Return the file name that ``go build`` gives a program, such as ``server`` for ``go.etcd.io/etcd/server/v3``."""
    *_, before, last = ["", *package.split("/")]
    return before if before and re.fullmatch(r"v[0-9]+", last) else last


def _collect(module: Path, patterns: Sequence[str], target: Path) -> None:
    documents: list[JSON] = []
    for pattern in patterns:
        files = sorted(module.glob(pattern))
        if not files:
            raise ToolError(f"{module} has no {pattern}")
        for file in files:
            documents += [value for _, value in yaml.load_all(file.read_bytes(), strict=False)]
    target.write_text(json.dumps(documents), encoding="utf-8")
