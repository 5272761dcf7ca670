# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ports of jobs. All pods share the ports of the machine, so a job whose port is taken uses another port.

For example, every TrainJob declares the same rendezvous port. We replace the declared port in the variables and
commands of the job's pods.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import free_ports

from trainerctl.localcluster.processes.names import subdomain

Group = tuple[str, str]
"""Pods that find each other by name: all pods of a headless Service. The two texts are the namespace and the Service.
"""


def group_of(pod: Pod) -> Group:
    """Return the group of a pod. Without a headless Service, the second text is empty."""
    return pod.namespace, subdomain(pod)


def declared(pod: Pod) -> list[int]:
    """Return the ports that a pod declares."""
    return [port.container_port or 0 for each in pod.spec.containers or [] for port in each.ports or []]


def replace_ports(text: str, ports: Mapping[int, int]) -> str:
    """Replace ports in ``text`` by their substitutes.

    A number counts as a port if it is the whole text or follows a colon.
    """
    for port, substitute in ports.items():
        text = re.sub(rf"\A{port}\Z|(?<=:){port}(?![\w.:-])", str(substitute), text)
    return text


def is_free(port: int) -> bool:
    """Return True if no program on the machine listens on the port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class Ports:
    """The declared ports of each group with running processes, and the ports that they use instead."""

    def __init__(
        self,
        is_free_: Callable[[int], bool] = is_free,
        choose: Callable[[], int] = lambda: free_ports(1)[0],
    ) -> None:
        self._is_free = is_free_
        self._choose = choose
        self._groups: dict[Group, dict[int, int]] = {}

    def of(self, pod: Pod, running: Collection[Group]) -> dict[int, int]:
        """Return which declared ports of a pod's group are replaced, and by which ports.

        Groups that are not in ``running`` lose their ports.
        """
        group = group_of(pod)
        if not group[1]:
            return {}
        self._groups = {each: ports for each, ports in self._groups.items() if each in running}
        mine = self._groups.setdefault(group, {})
        taken = {port for each, ports in self._groups.items() if each != group for port in ports.values()}
        for port in declared(pod):
            if port not in mine:
                mine[port] = port if port not in taken and self._is_free(port) else self._choose()
        return {port: substitute for port, substitute in mine.items() if port != substitute}
