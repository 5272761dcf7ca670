# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Options: the size and the components of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller_runtime.envtest import Tool

from pkg.localcluster import kai
from pkg.localcluster.nodes import NodeShape
from pkg.localcluster.tools import ALL, COSCHEDULER, KUBE_SCHEDULER


@dataclass(frozen=True)
class Options:
    """The size and the components of a cluster."""

    nodes: int = 4
    shape: NodeShape = field(default_factory=NodeShape)
    manager: bool = True
    timeout: float = 120
    coscheduling: bool = False
    """Use the scheduler of scheduler-plugins, which schedules gangs, instead of kube-scheduler."""
    kai: kai.Programs | None = None
    """Run KAI-Scheduler beside it, and the pod grouper in the manager."""

    @property
    def tools(self) -> list[Tool]:
        """The programs that the cluster needs."""
        if not self.coscheduling:
            return list(ALL)
        return [COSCHEDULER if tool is KUBE_SCHEDULER else tool for tool in ALL]
