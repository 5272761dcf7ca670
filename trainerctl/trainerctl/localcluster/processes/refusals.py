# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds pods that cannot run as local processes, and the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from controller_runtime.apis.core.v1 import Container, Pod

REASON: Final = "ProcessesUnsupported"
_LAUNCHERS: Final = frozenset(
    {"mpirun", "mpiexec", "orterun", "prterun", "horovodrun", "srun", "flux", "sshd", "ssh"}
)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash"})
_IN_SCRIPT: Final = re.compile(
    r"(?m)(?:^|[;&|(]|\bexec\b)[ \t]*(?:\S*/)?(mpirun|mpiexec|horovodrun|srun|sshd)\b"
)
_VOLUMES: Final = frozenset(
    {"emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath", "persistentVolumeClaim"}
)


def refusal(pod: Pod) -> str:
    """Return why a pod cannot run as local processes, or an empty text if it can."""
    spec = pod.spec
    for volume in spec.volumes or []:
        if unknown := sorted(volume.to_dict().keys() - _VOLUMES - {"name"}):
            return f"volume {volume.name} has the type {unknown[0]}, which local processes cannot mount"
    for container in [*(spec.init_containers or []), *(spec.containers or [])]:
        if reason := _of_container(container):
            return reason
    return ""


def _of_container(container: Container) -> str:
    if not container.command:
        return (
            f"container {container.name} has no command: the program of an image cannot run, "
            "because local processes have no images"
        )
    words = [*container.command, *(container.args or [])]
    if launcher := _launcher(words):
        return (
            f"container {container.name} runs {launcher}: launchers that start processes on other nodes over SSH "
            "are not supported by local processes"
        )
    return ""


def _launcher(words: Sequence[str]) -> str:
    program = PurePosixPath(words[0]).name
    if program in _LAUNCHERS:
        return program
    if program in _SHELLS:
        for word in words[1:]:
            if found := _IN_SCRIPT.search(word):
                return found[1]
    return ""
