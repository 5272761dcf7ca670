# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run an example as a user would: a process with a kubeconfig, ended by SIGTERM."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from controller_runtime.envtest import Environment

ROOT = Path(__file__).parents[3]


@pytest.fixture
def start_example(
    control_plane: Environment, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts ``examples/<name>.py`` with all permissions.

    After the test at least one process must still run. Those that do get SIGTERM, and must end with exit code 0.
    """
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(control_plane.kubeconfig_for("admin", ["system:masters"])))
    kubeconfig.chmod(0o600)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"{name}-{len(started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, ROOT / "examples" / f"{name}.py", *arguments],
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)},
                cwd=tmp_path,
                stdout=out,
                stderr=out,
            )
        started.append(process)
        return process

    yield start
    running = [process for process in started if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    logs = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert [process.returncode for process in running] == [0] * len(running), logs
    assert running, logs
