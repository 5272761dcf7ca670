# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run as processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Process:
    """A program that runs with the environment of the tests and ``environ``, and appends its output to a log."""

    def __init__(
        self,
        command: Iterable[object],
        log: Path,
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*map(str, command)], cwd=cwd, env={**os.environ, **(environ or {})}, stdout=out, stderr=out
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until the process has ended; return its exit code."""
        return self._process.wait(timeout=60)

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill the process if it still runs, as if the machine had failed."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running(
    command: Iterable[object],
    log: Path,
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    exit_code: int | None = 0,
) -> Iterator[Process]:
    """Run a program during the block, and end it by SIGTERM.

    It must not end earlier, and must end with ``exit_code``, unless this is None.
    """
    process = Process(command, log, cwd=cwd, environ=environ)
    try:
        yield process
        assert process.runs, log.read_text()[-4000:]
        code = process.terminate()
        assert exit_code in (None, code), log.read_text()[-4000:]
    finally:
        process.kill()
