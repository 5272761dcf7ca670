# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The last words of a container: the file at its terminationMessagePath, or the end of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller_runtime.apis.core.v1 import Container

from trainerctl.localcluster.processes.logs import tail
from trainerctl.localcluster.processes.process import Plan

DEFAULT_PATH: Final = "/dev/termination-log"
_FROM_LOG: Final = "FallbackToLogsOnError"
_LONGEST: Final = 4096
_LONGEST_FROM_LOG: Final = 2048
_LINES_FROM_LOG: Final = 80


def path_of(container: Container) -> str:
    """Return the path at which a container writes its message."""
    return container.termination_message_path or DEFAULT_PATH


def read(container: Container, plan: Plan, *, failed: bool) -> str:
    """Return the message of a container that has ended, or an empty text."""
    target = path_of(container)
    source = next((str(each["source"]) for each in plan.mounts if each["target"] == target), target)
    try:
        message = Path(source).read_bytes()[:_LONGEST].decode(errors="replace") if plan.isolated else ""
    except OSError:
        message = ""
    if not message and failed and container.termination_message_policy == _FROM_LOG:
        return tail(Path(plan.log), _LINES_FROM_LOG)[-_LONGEST_FROM_LOG:].decode(errors="replace")
    return message
