# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of local processes: pods, and the processes that run in them."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
from controller_runtime.apis.core.v1 import ContainerStateTerminated, Pod
from controller_runtime.envtest import eventually
from trainerctl.localcluster.podlogs import Query
from trainerctl.localcluster.processes import logs
from trainerctl.localcluster.processes.pod import PodRunner
from trainerctl.localcluster.processes.settings import Settings

UID = str(uuid.uuid4())
"""The uid of the tests' pods. It is random, so that another run on this machine does not find these processes."""


async def same_token(pod: Pod, projection: Any) -> str:
    """Return the same token for every pod."""
    return "token"


def new_pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    """Return the pod ``web`` of the namespace ``team``."""
    return Pod.from_dict(
        {
            "metadata": {"name": "web", "namespace": "team", "uid": UID},
            "spec": {"containers": list(containers), "restartPolicy": "Never", **spec},
        }
    )


def container(*command: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    """Return a container that runs a command."""
    return {"name": name, "image": "i", "command": list(command), **fields}


@asynccontextmanager
async def running(pod: Pod, settings: Settings) -> AsyncIterator[PodRunner]:
    """Run a pod during the block, and yield its runner. After the block, the processes of the pod have ended."""
    runner = PodRunner(pod, settings, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        yield runner
        tasks.cancel_scope.cancel()
    assert not commands_below(settings.directory)


def commands_below(directory: Path) -> list[str]:
    """Return the command lines of the containers' processes. ``directory`` is the folder of their kubelet."""
    return commands(lambda each: each.environ().get("PIP_TARGET", "").startswith(str(directory)))


def commands(is_wanted: Callable[[psutil.Process], bool]) -> list[str]:
    """Return the command lines of the wanted processes of this machine, except those that may not be read."""
    found = []
    for each in psutil.process_iter():
        try:
            if is_wanted(each):
                found.append(" ".join(each.cmdline()))
        except psutil.Error:
            continue
    return found


async def finished(pod: Pod, settings: Settings) -> PodRunner:
    """Return the runner of a pod that has ended by itself."""
    async with running(pod, settings) as runner:
        await end_of(runner)
    return runner


async def end_of(runner: PodRunner) -> None:
    """Return once a pod has ended."""
    with anyio.fail_after(60):
        await runner.finished.wait()


async def stop(runner: PodRunner, grace: float) -> None:
    """Stop a pod with a grace period in seconds, and return once it has ended."""
    runner.stop(grace)
    await end_of(runner)


async def until(condition: Callable[[], bool], reason: str) -> None:
    """Return once a condition holds."""

    async def holds() -> bool:
        return condition()

    await eventually(holds, timeout=60, reason=reason)


def read_log(settings: Settings, container: str = "main") -> str:
    """Return the log of the first run of a container."""
    reader = logs.LogReader(settings.logs(UID, container) / "0", Query())
    try:
        return b"".join(reader.read()).decode()
    finally:
        reader.close()


def exit_code(runner: PodRunner) -> int:
    """Return the exit code of the first container, which has ended."""
    state = runner.record.containers[0].state
    assert isinstance(state, ContainerStateTerminated)
    assert state.exit_code is not None
    return state.exit_code
