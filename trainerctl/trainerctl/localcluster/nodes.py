# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_runtime.apis.core.v1 import Node
from controller_runtime.envtest import HOST
from controller_runtime.machinery import JSON
from pkg.why import kinds

PROCESS_NODES: Final = "type=process"
"""The label selector for nodes whose pods run as local processes."""


@dataclass(frozen=True)
class NodeShape:
    """The resources of each node."""

    cpu: str = "64"
    memory: str = "512Gi"
    pods: int = 110
    gpus: int = 8


def node(
    number: int, shape: NodeShape, log_port: int = 0, *, processes: bool = False, cluster: str = ""
) -> Node:
    """Return the node with this number.

    The node becomes ready later: kwok or, with ``processes``, the kubelet of local processes reports this. The API
    server reads the logs of the node's pods from ``log_port``. If the port is 0, there are no logs. ``cluster`` is the
    name of the local cluster.
    """
    name = f"node-{number}"
    resources = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods)}
    if shape.gpus:
        resources["nvidia.com/gpu"] = str(shape.gpus)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{'ab'[number % 2]}",
        "type": "process" if processes else "kwok",
    }
    annotations = {} if processes else {"kwok.x-k8s.io/node": "fake"}
    if cluster:
        annotations[kinds.LOCAL_CLUSTER] = cluster
    return Node.from_dict(
        {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "status": {
                "capacity": dict(resources),
                "allocatable": dict(resources),
                "addresses": [{"type": "InternalIP", "address": HOST}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
            },
        }
    )


def is_usable(node: dict[str, JSON]) -> bool:
    """Return True if pods can be scheduled to a node: it is ready and has no taints."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and not (node.get("spec") or {}).get("taints")
