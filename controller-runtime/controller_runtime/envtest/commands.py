# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run a program to completion and read its output line by line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream


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
