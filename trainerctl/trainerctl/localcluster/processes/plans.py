# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The plans of a pod's containers: command, environment, mounts, working directory and limits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller_runtime.apis.core.v1 import Container, Pod

from trainerctl.localcluster.processes import logs, names
from trainerctl.localcluster.processes.environment import Environment, expand
from trainerctl.localcluster.processes.ports import replace_ports
from trainerctl.localcluster.processes.process import IDENTITY, Plan
from trainerctl.localcluster.processes.settings import Settings
from trainerctl.localcluster.processes.status import ContainerRecord, identity
from trainerctl.localcluster.processes.volumes import is_read_only, mounted

MOUNTS: Final = "POD_MOUNTS"
"""The environment variable for the folder with all mounts. It is set if containers cannot have their own mounts."""
_KEPT_LOGS: Final = 2
_MESSAGE: Final = "/dev/termination-log"
"""The default path of the file for a container's termination message."""


@dataclass(frozen=True)
class Plans:
    """Makes the plans for the containers of one pod. The folders in ``volumes`` must exist."""

    pod: Pod
    settings: Settings
    volumes: Mapping[str, Path]
    environment: Callable[[], Environment]
    ports: Mapping[int, int] = field(default_factory=dict)
    """If another program uses a port, this maps the port to the one that the pod uses instead."""

    async def make(self, container: Container, record: ContainerRecord) -> Plan:
        """Return the plan for the next run of a container.

        Raises:
            ConfigError: an object or volume that the container refers to does not exist.
            StatusError: an object cannot be read.
        """
        run = record.next_run
        folder = self.settings.pod(self.pod.metadata.uid or "") / "containers" / container.name
        work, scratch = folder / "work", folder / "scratch"
        for path in (work, scratch):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = await self.environment().of(container)
        given = {name: replace_ports(value, self.ports) for name, value in found.items()}
        fixed = {each.name for each in self.pod.spec.volumes or [] if is_read_only(each)}
        mounts = [
            mounted(each, self.volumes, given, read_only=each.name in fixed)
            for each in container.volume_mounts or []
        ]
        values = {
            **self._base(container, folder),
            **given,
            IDENTITY: identity(self.pod, container.name, run),
        }
        if "PYTHONPATH" in given:
            values["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), given["PYTHONPATH"]])
        words = [*(container.command or []), *(container.args or [])]
        argv = [replace_ports(expand(each, given), self.ports) for each in words]
        cwd = container.working_dir or str(work)
        message = ""
        if self.settings.isolated:
            mounts += self._files(container, folder, {str(each["target"]) for each in mounts})
            wanted = container.termination_message_path or _MESSAGE
            message = next((str(each["source"]) for each in mounts if each["target"] == wanted), "")
        else:
            values, argv, cwd = self._without_mounts(values, argv, cwd, mounts)
        return Plan(
            argv=argv,
            env=values,
            cwd=cwd,
            log=str(self._log(container, run)),
            scratch=str(scratch),
            hostname=names.host_name(self.pod),
            mounts=mounts,
            isolated=self.settings.isolated,
            message=message,
            ports=self.ports,
        )

    def _base(self, container: Container, folder: Path) -> dict[str, str]:
        """Return the variables that an image or a kubelet would set."""
        host, _, port = self.settings.server.rpartition(":")
        home = self.settings.directory / "home"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            **names.passed_environment(),
            "PATH": self.settings.images.search_path(container.image or ""),
            "HOME": str(home),
            "HOSTNAME": names.host_name(self.pod),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "PIP_TARGET": str(folder / "site"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONPATH": str(folder / "site"),
            "PYTHONUNBUFFERED": "1",
        }

    def _files(self, container: Container, folder: Path, taken: set[str]) -> list[dict[str, object]]:
        """Return the mounts that every container has: the hosts file and the file for its termination message."""
        message = folder / "message"
        message.write_bytes(b"")
        hosts = self.settings.hosts.path(self.pod.namespace)
        files = {"/etc/hosts": hosts, container.termination_message_path or _MESSAGE: message}
        return [
            {"source": os.path.realpath(source), "target": target, "read_only": False}
            for target, source in files.items()
            if target not in taken
        ]

    def _without_mounts(
        self, values: dict[str, str], argv: list[str], cwd: str, mounts: list[dict[str, object]]
    ) -> tuple[dict[str, str], list[str], str]:
        """Adapt the variables, the command and the working directory to a machine without mounts, and return them.

        Below one folder, there is a link for each mount. Names of pods are replaced by addresses.
        """
        root = self.settings.pod(self.pod.metadata.uid or "") / "root"
        for each in mounts:
            link = root / str(each["target"]).strip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(str(each["source"]))
        addresses = self.settings.hosts.addresses(self.pod.namespace)
        replaced = {name: names.replace_names(value, addresses) for name, value in values.items()}
        if not Path(cwd).is_dir():
            cwd = str(root / cwd.strip("/"))
            Path(cwd).mkdir(parents=True, exist_ok=True)
        return {**replaced, MOUNTS: str(root)}, [names.replace_names(each, addresses) for each in argv], cwd

    def _log(self, container: Container, run: int) -> Path:
        """Remove the oldest logs of the container, and return the folder for the log of this run."""
        folder = self.settings.logs(self.pod.metadata.uid or "", container.name)
        for old in logs.runs(folder):
            if old <= run - _KEPT_LOGS:
                shutil.rmtree(folder / str(old), ignore_errors=True)
        return folder / str(run)
