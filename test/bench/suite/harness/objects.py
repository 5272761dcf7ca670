# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The objects of workloads on managers: TrainJobs, their runtimes, and statuses of JobSets."""

from __future__ import annotations

import copy
from typing import Any, Final

from pkg import shipped

NAMESPACE: Final = "bench"
TRAINER: Final = "/apis/trainer.kubeflow.org/v1alpha1"
TRAIN_JOBS: Final = f"{TRAINER}/namespaces/{NAMESPACE}/trainjobs"
JOB_SETS: Final = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_GROUPS: Final = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups"
COLLECTIONS: Final = (
    TRAIN_JOBS,
    JOB_SETS,
    PODS,
    POD_GROUPS,
    *(f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("secrets", "configmaps", "events")),
    f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups",
    *(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}"
        for kind in ("deployments", "replicasets", "statefulsets")
    ),
    f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
)
"""The collections of all objects that a workload creates, or a manager for it."""

TORCH: Final = "torch"
COSCHEDULING: Final = "coscheduling"
MPI: Final = "mpi"
_SHIPPED: Final = {
    TORCH: "torch-distributed",
    COSCHEDULING: "torch-distributed",
    MPI: "deepspeed-distributed",
}
_RESOURCES: Final = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}


def runtimes() -> list[dict[str, Any]]:
    """Return the runtimes of the workloads' TrainJobs: changed copies of shipped ones, one of them gang-scheduled."""
    manifests = {each["metadata"]["name"]: each for each in shipped.manifests("runtimes")}
    made = []
    for name, like in _SHIPPED.items():
        runtime = copy.deepcopy(manifests[like])
        runtime["metadata"] = {"name": name}
        if name == COSCHEDULING:
            runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 60}}
        made.append(runtime)
    return made


def train_job(name: str, runtime: str = TORCH, *, suspend: bool = False) -> dict[str, Any]:
    """Return a TrainJob of two nodes."""
    trainer = {
        "numNodes": 2,
        "image": "registry.example.com/team/train:1",
        "command": ["torchrun", "train.py"],
        "args": ["--epochs=3", "--batch-size=64"],
        "resourcesPerNode": {"requests": _RESOURCES, "limits": _RESOURCES},
        "env": [{"name": f"SETTING_{number}", "value": str(number)} for number in range(5)],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": runtime}, "suspend": suspend, "trainer": trainer},
    }


def active() -> dict[str, Any]:
    """Return the status of a JobSet whose job runs."""
    counts = {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    return {"status": {"replicatedJobsStatus": [{"name": "node", **counts}]}}


def completed() -> dict[str, Any]:
    """Return the status of a JobSet whose job is complete."""
    condition = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "jobset completed successfully",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    counts = {"ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    return {
        "status": {
            "conditions": [condition],
            "terminalState": "Completed",
            "replicatedJobsStatus": [{"name": "node", **counts}],
        }
    }


def names(tag: str, count: int) -> list[str]:
    """Return ``count`` names in alphabetical order."""
    return [f"{tag}-{number:05}" for number in range(count)]
