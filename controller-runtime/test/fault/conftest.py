# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run managers in separate processes against a real API server that is broken on purpose.

The tests print the durations and counts that they measure, and assert a maximum for each.
"""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from ctrl_testkit.faults import audit_log as audit_log
from ctrl_testkit.faults import client as client
from ctrl_testkit.faults import control_plane as control_plane
from ctrl_testkit.faults import namespace as namespace
from ctrl_testkit.faults import new_proxy as new_proxy
from ctrl_testkit.faults import outage_seconds as outage_seconds
from ctrl_testkit.faults import proxy as proxy
from ctrl_testkit.faults import writes as writes
from ctrl_testkit.figures import figure as figure
from ctrl_testkit.figures import pytest_terminal_summary as pytest_terminal_summary

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def start(control_plane: Environment, namespace: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that starts ``program.py`` as a manager of a name; those that still run are killed at the end.

    The manager connects to the API server, or to ``server`` if it is given. ``clock`` is a file with the number of
    seconds by which its wall clock is off.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start_one(name: str, *, server: str = "", clock: Path | None = None) -> subprocess.Popen[bytes]:
        content = control_plane.kubeconfig_for("admin", ["system:masters"])
        if server:
            content["clusters"][0]["cluster"] = {"server": server}
        kubeconfig = tmp_path / f"{name}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(content))
        kubeconfig.chmod(0o600)
        under = [] if clock is None else [str(PROGRAM.with_name("clock.py")), str(clock)]
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *under, str(PROGRAM), str(kubeconfig), namespace, name],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def contends(tmp_path: Path) -> Callable[[str], Awaitable[None]]:
    """Return a function that waits until the manager of a name tries to acquire the lease."""

    async def wait(name: str) -> None:
        log = tmp_path / f"{name}.log"
        await eventually(
            lambda: "Attempting to acquire" in log.read_text(),
            timeout=60,
            reason=f"{name} waits for the lease",
        )

    return wait


@pytest.fixture
async def work(client: LiveClient, namespace: str, writes: Any) -> Callable[[], list[tuple[str, float]]]:
    """Create the ConfigMap ``work``; the returned function lists who patched ConfigMaps of the namespace, and when."""
    await client.create(ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "work"}}))

    def read() -> list[tuple[str, float]]:
        return [
            (each["userAgent"], datetime.fromisoformat(each["requestReceivedTimestamp"]).timestamp())
            for each in writes(namespace)
            if each["verb"] == "patch" and each["objectRef"]["resource"] == "configmaps"
        ]

    return read
