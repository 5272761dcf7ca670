# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that local processes refuse."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod

from trainerctl.localcluster.processes.refusals import refusal


def _pod(container: dict[str, Any], **spec: Any) -> Pod:
    return Pod.from_dict({"spec": {"containers": [{"name": "main", **container}], **spec}})


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["mpirun", "-n", "2", "python"], "mpirun"),
        (["/usr/bin/mpirun"], "mpirun"),
        (["horovodrun", "-np", "2", "python"], "horovodrun"),
        (["/usr/sbin/sshd", "-D"], "sshd"),
        (["bash", "-c", "cd /x && mpirun -n 2 x"], "mpirun"),
        (["bash", "-c", "set -e\n  exec /opt/bin/mpiexec x"], "mpiexec"),
        (["sh", "-c", "(srun x)"], "srun"),
    ],
)
def test_launchers_of_other_nodes_are_refused(command: list[str], word: str) -> None:
    assert f"runs {word}" in refusal(_pod({"command": command[:1], "args": command[1:]}))


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-c", "mpirun"],
        ["bash", "-c", "echo mpirun"],
        ["bash", "-c", "python mpirun.py"],
        ["torchrun", "x"],
    ],
)
def test_other_commands_run(command: list[str]) -> None:
    assert refusal(_pod({"command": command})) == ""


def test_a_container_without_a_command_is_refused() -> None:
    assert "container main has no command" in refusal(_pod({"args": ["x"]}))


def test_a_volume_that_cannot_be_mounted_is_named() -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "nfs": {"server": "s", "path": "/"}}]
    assert "volume b has the type nfs" in refusal(_pod({"command": ["x"]}, volumes=volumes))
