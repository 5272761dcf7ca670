# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ports of jobs: all pods share the ports of the machine, so a job whose port is taken uses another one.

Every TrainJob has the same rendezvous port. The pods of a job learn the port from their variables and commands, where
the substitute replaces the declared port.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Mapping

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import free_ports

from trainerctl.localcluster.processes.names import subdomain

Group = tuple[str, str]
"""The pods that find each other by name: a namespace and a headless Service."""


def group_of(pod: Pod) -> Group:
    """Return the group of a pod; the Service is an empty string if no headless Service gives the pod a name."""
    return pod.namespace, subdomain(pod)


def declared(pod: Pod) -> list[int]:
    """Return the ports that a pod declares."""
    return [port.container_port or 0 for each in pod.spec.containers or [] for port in each.ports or []]


def replace_ports(text: str, ports: Mapping[int, int]) -> str:
    """Return ``text`` with substitutes for ports: a port is replaced if it is the whole text or follows a colon."""
    for port, substitute in ports.items():
        text = re.sub(rf"\A{port}\Z|(?<=:){port}(?![\w.:-])", str(substitute), text)
    return text


def is_free(port: int) -> bool:
    """Return True if no program of the machine listens on the port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class Ports:
    """The ports, and their substitutes, of the groups whose processes run."""

    def __init__(
        self,
        is_free_: Callable[[int], bool] = is_free,
        choose: Callable[[], int] = lambda: free_ports(1)[0],
    ) -> None:
        self._is_free = is_free_
        self._choose = choose
        self._groups: dict[Group, dict[int, int]] = {}

    def of(self, pod: Pod, running: Collection[Group]) -> dict[int, int]:
        """Return the substitutes for ports of a pod's group, by port.

        Groups that are not in ``running`` lose their substitutes.
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
