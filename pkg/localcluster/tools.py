# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller_runtime.envtest import Tool, ToolGroup
from controller_runtime.envtest.binaries import ETCD, kube_tool

_TOOLS: Final = Path(__file__).parent / "tools"
_KWOK: Final = ToolGroup(_TOOLS / "kwok", "sigs.k8s.io/kwok")
_JOBSET: Final = ToolGroup(_TOOLS / "jobset", "sigs.k8s.io/jobset")
_SCHEDULER_PLUGINS: Final = ToolGroup(_TOOLS / "scheduler-plugins", "sigs.k8s.io/scheduler-plugins")

KWOK: Final = Tool("kwok", _KWOK, "sigs.k8s.io/kwok/cmd/kwok", manifests=("kustomize/rbac/role.yaml",))
JOBSET: Final = Tool(
    "jobset-controller",
    _JOBSET,
    "sigs.k8s.io/jobset",
    manifests=(
        "config/components/crd/bases/*.yaml",
        "config/components/rbac/role.yaml",
        "config/components/webhook/manifests.yaml",
    ),
)

KUBE_SCHEDULER: Final = kube_tool("kube-scheduler")
COSCHEDULER: Final = Tool(
    "coscheduling-scheduler",
    _SCHEDULER_PLUGINS,
    "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
    manifests=("manifests/coscheduling/crd.yaml",),
)

ALL: Final = (
    ETCD,
    kube_tool("kube-apiserver"),
    kube_tool("kube-controller-manager"),
    KUBE_SCHEDULER,
    JOBSET,
    KWOK,
)
"""All tools of the default cluster, those that need the oldest Go first."""
