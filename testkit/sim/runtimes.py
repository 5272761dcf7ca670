# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The runtimes of the simulated cluster: plain, gang-scheduled, MPI, with an initializer, and a namespaced one."""

from __future__ import annotations

from typing import Any

from controller_runtime.machinery import Object

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime

Document = dict[str, Any]
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def _job(name: str, ancestor: str = "", container: str = "node", **fields: Any) -> Document:
    template: Document = {"spec": {"template": {"spec": {"containers": [{"name": container, "image": "i"}]}}}}
    if ancestor:
        template["metadata"] = {"labels": {_ANCESTOR: ancestor}}
    return {"name": name, "replicas": 1, "template": template, **fields}


def _spec(*jobs: Document, **policies: Any) -> Document:
    return {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [*jobs]}}, **policies}


_MPI = {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "runLauncherAsNode": True}
_AFTER: Document = {"dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}

SPECS: dict[str, Document] = {
    "plain": _spec(_job("node", "trainer")),
    "gang": _spec(_job("node", "trainer"), podGroupPolicy={"coscheduling": {"scheduleTimeoutSeconds": 100}}),
    "mpi": _spec(_job("launcher", "trainer"), _job("node"), mlPolicy={"numNodes": 1, "mpi": _MPI}),
    "initialized": _spec(
        _job("dataset-initializer", "dataset-initializer", "dataset-initializer"),
        _job("node", "trainer", **_AFTER),
    ),
    "local": _spec(_job("node", "trainer")),
}
NAMES = tuple(SPECS)


def kind_of(name: str) -> type[Object]:
    """Return the kind of the runtime of that name."""
    return TrainingRuntime if name == "local" else ClusterTrainingRuntime


def reference_to(name: str) -> Document:
    """Return the reference of a TrainJob to the runtime of that name."""
    return {"apiGroup": "trainer.kubeflow.org", "kind": kind_of(name).gvk.kind, "name": name}


def runtime(name: str) -> Object:
    """Return the runtime of that name, as an administrator installs it."""
    metadata = {"name": name} | ({"namespace": "default"} if name == "local" else {})
    made: Object = kind_of(name).from_dict({"metadata": metadata, "spec": SPECS[name]})
    return made


def children_of(name: str) -> tuple[str, ...]:
    """Return the kinds of the children of a TrainJob with the runtime of that name."""
    return {"gang": ("JobSet", "PodGroup"), "mpi": ("JobSet", "ConfigMap", "Secret")}.get(name, ("JobSet",))
