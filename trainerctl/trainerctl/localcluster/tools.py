# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of the cluster. Their releases are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller_runtime.envtest import DEFAULT_RELEASE, ETCD, RELEASES, Tool, ToolGroup, kube_tool

DEFAULT_KUBERNETES: Final = DEFAULT_RELEASE
DEFAULT_JOBSET: Final = "0.10"
KUBERNETES_RELEASES: Final = tuple(RELEASES)

_TOOLS: Final = Path(__file__).parent / "tools"
_KWOK: Final = ToolGroup(_TOOLS / "kwok", "sigs.k8s.io/kwok")
_SCHEDULER_PLUGINS: Final = ToolGroup(_TOOLS / "scheduler-plugins", "sigs.k8s.io/scheduler-plugins")

KWOK: Final = Tool("kwok", _KWOK, "sigs.k8s.io/kwok/cmd/kwok", manifests=("kustomize/rbac/role.yaml",))


def _jobset(directory: str) -> Tool:
    module = "sigs.k8s.io/jobset"
    manifests = (
        "config/components/crd/bases/*.yaml",
        "config/components/rbac/role.yaml",
        "config/components/webhook/manifests.yaml",
    )
    return Tool("jobset-controller", ToolGroup(_TOOLS / directory, module), module, manifests=manifests)


JOBSETS: Final[Mapping[str, Tool]] = {
    "0.10": _jobset("jobset"),
    "0.11": _jobset("jobset-0.11"),
    "0.12": _jobset("jobset-0.12"),
}
"""The JobSet controller of each minor release."""

JOBSET: Final = JOBSETS[DEFAULT_JOBSET]
COSCHEDULER: Final = Tool(
    "coscheduling-scheduler",
    _SCHEDULER_PLUGINS,
    "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
    manifests=("manifests/coscheduling/crd.yaml",),
)
PROMETHEUS: Final = Tool(
    "prometheus",
    ToolGroup(_TOOLS / "prometheus", "github.com/prometheus/prometheus"),
    "github.com/prometheus/prometheus/cmd/prometheus",
    tags=("remove_all_sd",),
)
"""Prometheus, built without service discovery."""


def programs(
    kubernetes: str = DEFAULT_KUBERNETES,
    jobset: str = DEFAULT_JOBSET,
    *,
    coscheduling: bool = False,
    simulated: bool = True,
) -> tuple[Tool, ...]:
    """Return the programs of a cluster with these releases.

    The program that needs the oldest release of Go comes first. kwok is included only for ``simulated`` nodes.
    """
    return (
        ETCD,
        kube_tool("kube-apiserver", kubernetes),
        kube_tool("kube-controller-manager", kubernetes),
        COSCHEDULER if coscheduling else kube_tool("kube-scheduler", kubernetes),
        JOBSETS[jobset],
        *((KWOK,) if simulated else ()),
    )
