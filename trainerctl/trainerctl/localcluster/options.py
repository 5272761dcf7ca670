# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The options of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller_runtime.envtest import EnvtestError, Tool
from pkg import features
from pkg.apis.config.v1alpha1 import V2_1

from trainerctl.localcluster import kai
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.tools import (
    DEFAULT_JOBSET,
    DEFAULT_KUBERNETES,
    JOBSETS,
    KUBERNETES_RELEASES,
    PROMETHEUS,
    programs,
)

_GANG_VERSIONS: Final = {"1.35": "v1alpha1", "1.36": "v1alpha2", "1.37": "v1beta1"}
"""For each release of Kubernetes that has gangs, the version of scheduling.k8s.io that contains them."""
_ROLES: Final = {
    features.FAILURE_EVIDENCE: "failure-evidence",
    features.TRAIN_JOB_STATUS: "status-server",
    features.TTL_AFTER_FINISHED: "ttl-after-finished",
}
"""For each feature gate, the folder with the role that the manager needs for it."""
_TWO_GATES: Final = frozenset({"1.35", "1.36"})
"""Releases whose scheduler has a second feature gate for gangs."""


@dataclass(frozen=True)
class Options:
    """The size of a cluster, its components, and their releases."""

    nodes: int = 4
    shape: NodeShape = field(default_factory=NodeShape)
    manager: bool = True
    timeout: float = 120
    coscheduling: bool = False
    """Replace kube-scheduler by the scheduler of scheduler-plugins, which schedules gangs."""
    kai: kai.Programs | None = None
    """Run KAI-Scheduler in addition to the other scheduler, and run the pod grouper in the manager."""
    kubernetes: str = DEFAULT_KUBERNETES
    """The minor release of Kubernetes, such as ``1.36``."""
    jobset: str = DEFAULT_JOBSET
    """The minor release of JobSet, such as ``0.11``."""
    workloads: bool = False
    """Enable Kubernetes' own gangs: the feature gates and the API."""
    manager_gates: Mapping[str, bool] = field(default_factory=dict)
    """The manager's feature gates. FailureEvidence is on unless this or AllAlpha is set here."""
    compatibility_version: str = V2_1
    """The release of Trainer like which the manager behaves."""
    run_processes: bool = False
    """Run pods as local processes. Otherwise pods are simulated."""
    images: Sequence[str] = ()
    """Folders that contain the programs of images. Each item has the form IMAGE=FOLDER."""
    prometheus: bool = False
    """Run Prometheus, which scrapes the manager."""

    @property
    def tools(self) -> list[Tool]:
        """The programs that the cluster needs."""
        simulated = not self.run_processes
        found = programs(self.kubernetes, self.jobset, coscheduling=self.coscheduling, simulated=simulated)
        return [*found, *((PROMETHEUS,) if self.prometheus else ())]

    @property
    def feature_gates(self) -> str:
        """The feature gates of Kubernetes' components. The text is empty if the components use their defaults."""
        if not self.workloads:
            return ""
        gates = ["GenericWorkload"] + ["GangScheduling"] * (self.kubernetes in _TWO_GATES)
        return ",".join(f"{gate}=true" for gate in gates)

    @property
    def serves_status(self) -> bool:
        """True if the manager accepts status updates from pods."""
        return self._enabled.enabled(features.TRAIN_JOB_STATUS)

    @property
    def gated_roles(self) -> list[str]:
        """The folders of the roles that the manager's feature gates need."""
        return [folder for gate, folder in _ROLES.items() if self._enabled.enabled(gate)]

    @property
    def gates(self) -> dict[str, bool]:
        """The manager's feature gates that differ from their defaults in the manager."""
        is_set = not {features.FAILURE_EVIDENCE, "AllAlpha"}.isdisjoint(self.manager_gates)
        return {**({} if is_set else {features.FAILURE_EVIDENCE: True}), **self.manager_gates}

    @property
    def _enabled(self) -> features.Gates:
        return features.resolve(self.gates)

    @property
    def gang_controllers(self) -> list[str]:
        """The additional controllers of Kubernetes that gangs need.

        Since 1.36, there is a controller that prevents the removal of PodGroups which still have pods.
        """
        protects = self.workloads and self.kubernetes != "1.35"
        return ["podgroup-protection-controller"] if protects else []

    @property
    def api_server_flags(self) -> list[str]:
        """The API server's additional flags."""
        if not self.workloads:
            return []
        version = _GANG_VERSIONS[self.kubernetes]
        return [f"--feature-gates={self.feature_gates}", f"--runtime-config=scheduling.k8s.io/{version}=true"]

    def check(self, platform: str = sys.platform) -> None:
        """Raise EnvtestError if the options contradict each other, or if a value is unknown or not available here."""
        if self.run_processes and platform != "linux":
            raise EnvtestError("pods can run as local processes only on Linux")
        for name, value, known in (
            ("Kubernetes", self.kubernetes, KUBERNETES_RELEASES),
            ("JobSet", self.jobset, tuple(JOBSETS)),
        ):
            if value not in known:
                raise EnvtestError(f"{name} {value} is not among the pinned releases: {', '.join(known)}")
        if self.workloads and self.kubernetes not in _GANG_VERSIONS:
            raise EnvtestError(f"Kubernetes {self.kubernetes} has no gangs: use 1.35 or newer")
        if self.coscheduling and self.kubernetes != DEFAULT_KUBERNETES:
            raise EnvtestError(f"the coscheduling scheduler is built for Kubernetes {DEFAULT_KUBERNETES}")
        if self.prometheus and not self.manager:
            raise EnvtestError("Prometheus scrapes the manager, which is not started")
        if self.coscheduling and self.workloads:
            raise EnvtestError("the coscheduling scheduler does not schedule Kubernetes' own gangs")
        if self.kai is not None:
            self.kai.check()
