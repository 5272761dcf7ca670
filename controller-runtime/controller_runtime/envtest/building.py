# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Build the programs of one go.mod with one ``go build``: Go compiles and links as much as it can at the same time."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from controller_runtime.apis.machinery import yaml
from controller_runtime.envtest.commands import run_lines
from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.gotoolchain import Go
from controller_runtime.envtest.progress import Progress
from controller_runtime.envtest.tool import Tool

if TYPE_CHECKING:
    from controller_runtime.apis.machinery.base import JSON

_PARTIAL: Final = "*.partial"
_OPTIMIZED: Final = ("std", "golang.org/...", "google.golang.org/...", "go.etcd.io/...", "sigs.k8s.io/...")
"""Packages in which servers spend their time: only here, calls are inlined."""
_FLAGS: Final = (
    "-gcflags=all=-dwarf=false -l",
    *(f"-gcflags={pattern}=-dwarf=false" for pattern in _OPTIMIZED),
)
"""The same for every program: each set of compiler flags fills a build cache of its own.

The linker drops debug information in any case; without it, the compiler uses 14 % less CPU, and without inlining 17 %
less again. With ``-trimpath``, groups that replace a module by the same version would not share what they compile.
"""


def batches(tools: Sequence[Tool]) -> list[list[Tool]]:
    """Return the tools by what one ``go build`` can build, in the order of the first of each."""
    found: dict[object, list[Tool]] = {}
    for tool in tools:
        found.setdefault((tool.group, *sorted(tool.symbols.items()), *tool.tags), []).append(tool)
    return list(found.values())


def title(batch: Sequence[Tool]) -> str:
    """Return the programs' names and their version."""
    return f"{', '.join(tool.name for tool in batch)} {batch[0].group.version}"


def clear_partial(directory: Path) -> None:
    """Create the group's directory and remove the remains of interrupted builds; the caller holds the lock."""
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f".{_PARTIAL}"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@dataclass(frozen=True)
class Build:
    """One ``go build``; ``directory`` receives the programs."""

    batch: Sequence[Tool]
    directory: Path
    go: Go
    environ: Mapping[str, str]
    progress: Progress
    task: str

    async def run(self, compiling: anyio.Event) -> None:
        """Return when every program is in its place; set ``compiling`` once every module is downloaded.

        Raises:
            ToolError: a command of Go failed; the message is its last line.
        """
        first = self.batch[0]
        total = len(await dependencies(self.batch, self.go, self.environ, self._detail))
        compiling.set()
        seen = 0

        def compiled(line: str) -> None:
            nonlocal seen
            if not line.startswith("go: "):
                seen = min(seen + 1, total)
            self.progress.update(self.task, done=seen, total=total, detail=line[:80])

        symbols = " ".join(f"-X {name}={value}" for name, value in first.symbols.items())
        partial = Path(tempfile.mkdtemp(prefix=".", suffix=_PARTIAL[1:], dir=self.directory))
        arguments = [
            "build",
            "-v",
            "-p",
            str(min(os.cpu_count() or 1, 4)),
            *_FLAGS,
            *_tags(self.batch),
            "-ldflags",
        ]
        arguments += [f"-s -w {symbols}".strip(), "-o", f"{partial}{os.sep}", *_packages(self.batch)]
        await _go(self.batch, self.go, self.environ, arguments, compiled)
        for tool in self.batch:
            await self._place(tool, partial)
        shutil.rmtree(partial)

    async def _place(self, tool: Tool, partial: Path) -> None:
        """Move a program to where it is found, after the files that belong to it."""
        if tool.manifests:
            arguments = ["list", "-m", "-f", "{{.Dir}}", tool.group.module]
            out = await _go(self.batch, self.go, self.environ, arguments, self._detail)
            manifests = partial / f"{tool.name}.json"
            _collect(Path(out[0]), tool.manifests, manifests)
            manifests.replace(self.directory / manifests.name)
        note = {"go": self.go.version, "package": tool.package, "version": tool.group.version}
        (self.directory / f"{tool.name}.build.json").write_text(json.dumps(note) + "\n", encoding="utf-8")
        (partial / executable(tool.package)).replace(self.directory / tool.name)

    def _detail(self, line: str) -> None:
        self.progress.update(self.task, detail=line[:80])


async def dependencies(
    batch: Sequence[Tool],
    go: Go,
    environ: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
) -> list[str]:
    """Return the packages that the programs consist of; Go downloads the modules that it does not have.

    Raises:
        ToolError: Go failed; the message is its last line.
    """
    return await _go(batch, go, environ, ["list", "-deps", *_tags(batch), *_packages(batch)], on_line)


async def _go(
    batch: Sequence[Tool],
    go: Go,
    environ: Mapping[str, str],
    arguments: list[str],
    on_line: Callable[[str], None] | None,
) -> list[str]:
    code, out, err = await run_lines(
        [str(go.binary), *arguments],
        cwd=batch[0].group.directory,
        env=go.environment(environ),
        on_line=on_line,
    )
    if code != 0:
        raise ToolError(f"{' '.join(['go', arguments[0]])} failed: {_reason(err) or f'exit code {code}'}")
    return out


def _tags(batch: Sequence[Tool]) -> list[str]:
    return [f"-tags={','.join(batch[0].tags)}"] if batch[0].tags else []


def _packages(batch: Sequence[Tool]) -> list[str]:
    return [tool.package for tool in batch]


def executable(package: str) -> str:
    """Return the file name that ``go build`` gives a program: the last element of its path that is not a version."""
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


def _reason(lines: Sequence[str]) -> str:
    """Return the last line of a failed ``go`` run that is not a progress message."""
    messages = [line.strip() for line in lines if line.strip() and not line.startswith("go: downloading ")]
    return messages[-1] if messages else ""
