# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The settings that all pods share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import Reader
from controller_runtime.machinery.backoff import exponential

from trainerctl.localcluster.processes.images import Images
from trainerctl.localcluster.processes.names import Hosts
from trainerctl.localcluster.processes.volumes import NewToken

Record = Callable[[Pod, str, str], None]
"""Records an event: pod, reason, message."""


@dataclass(frozen=True)
class BackOff:
    """The delays before restarts, in seconds. After a run of at least ``reset`` seconds, the delays start again."""

    first: float = 1.0
    longest: float = 60.0
    reset: float = 600.0

    def delay(self, failures: int) -> float:
        """Return the delay after ``failures`` restarts in a row."""
        return exponential(failures, self.first, self.longest)


@dataclass(frozen=True)
class Settings:
    """The settings of all pods, such as folders, images and clocks."""

    directory: Path
    images: Images
    hosts: Hosts
    reader: Reader
    new_token: NewToken
    record: Record
    server: str = ""
    """The API server's address, HOST:PORT, for clients in pods."""
    isolated: bool = True
    """True if containers have their own mounts."""
    back_off: BackOff = field(default_factory=BackOff)
    retry: float = 2.0
    """If a Secret, ConfigMap or volume is missing, we look for it again after this many seconds."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def cluster(self) -> str:
        """Identifies the cluster, so that the pods of two clusters get different addresses."""
        return str(self.directory)

    @property
    def claims(self) -> Path:
        """The folder for the data of claims, which is kept after their pods are removed."""
        return self.directory / "claims"

    def pod(self, uid: str) -> Path:
        """Return the folder of a pod."""
        return self.directory / "pods" / uid

    def logs(self, uid: str, container: str) -> Path:
        """Return the folder of a container's logs. It contains a folder for each run."""
        return self.pod(uid) / "logs" / container
