# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run an example as a user would: a process with a kubeconfig, ended by SIGTERM."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from controller_runtime.envtest import Environment
from ctrl_testkit.processes import Process

ROOT = Path(__file__).parents[3]


@pytest.fixture
def start_example(control_plane: Environment, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Return a function that starts ``examples/<name>.py`` with all permissions.

    After the test at least one process must still run. Those that do get SIGTERM, and must end with exit code 0.
    """
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(control_plane.kubeconfig_for("admin", ["system:masters"])))
    kubeconfig.chmod(0o600)
    started: list[Process] = []

    def start(name: str, *arguments: str) -> Process:
        log = tmp_path / f"{name}-{len(started)}.log"
        environ = {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, ROOT / "examples" / f"{name}.py", *arguments]
        started.append(Process(command, log, cwd=tmp_path, environ=environ))
        return started[-1]

    yield start
    codes = [process.terminate() for process in started if process.runs]
    logs = "\n".join(process.log.read_text() for process in started)
    assert codes, logs
    assert set(codes) == {0}, logs
