# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The leader dies, or is asked to end, while another manager waits."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pkg.apis.coordination.v1 import Lease
from pkg.apis.core.v1 import ConfigMap
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import Environment, eventually

pytestmark = pytest.mark.fault
PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[2]
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(plane: Environment, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Start a manager by its name; what still runs at the end is killed."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(plane.kubeconfig_for("admin", ["system:masters"])))
    kubeconfig.chmod(0o600)
    started: list[subprocess.Popen[bytes]] = []

    def start_one(name: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(kubeconfig), namespace, name],
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


async def test_the_standby_takes_over_and_no_two_write_at_a_time(
    client: LiveClient, namespace: str, start: Start, writes: Any, figure: Any, tmp_path: Path
) -> None:
    await client.create(ConfigMap.from_dict({"metadata": {"namespace": namespace, "name": "work"}}))

    def work() -> list[tuple[str, float]]:
        return [
            (each["userAgent"], datetime.fromisoformat(each["requestReceivedTimestamp"]).timestamp())
            for each in writes(namespace)
            if each["verb"] == "patch" and each["objectRef"]["resource"] == "configmaps"
        ]

    async def works(name: str) -> float:
        """Return when the manager ``name`` wrote for the first time."""
        return await eventually(
            lambda: next((at for agent, at in work() if agent == name), None),
            timeout=30,
            reason=f"{name} does not work",
        )

    async def contends(name: str) -> None:
        await eventually(
            lambda: "Attempting to acquire" in (tmp_path / f"{name}.log").read_text(),
            timeout=20,
            reason=f"{name} does not wait for the lease",
        )

    first = start("first")
    await works("first")
    second = start("second")
    await contends("second")
    killed = time.time()
    first.kill()
    figure("leader killed: standby works after", await works("second") - killed, at_most=17.4)

    start("third")
    await contends("third")
    asked = time.time()
    second.terminate()
    figure("leader stopped: standby works after", await works("third") - asked, at_most=3)
    assert second.wait(timeout=5) == 0
    assert [agent for agent, _ in itertools.groupby(agent for agent, _ in work())] == [
        "first",
        "second",
        "third",
    ]
    lease = await client.get(Lease, (namespace, "lock"))
    assert lease.spec.lease_transitions == 2
