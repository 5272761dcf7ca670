# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each field of spec.trainer changes the objects of a TrainJob, or the webhook says that it has no effect.

All policies meet all shapes of templates, so that no combination is forgotten.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.fake import FakeClient

from pkg.apis.config.v1alpha1 import V2_1, V2_3, defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.constants.trainer import ANCESTOR_TRAINER, DATASET_INITIALIZER, LABEL_TRAIN_JOB_ANCESTOR
from pkg.runtime import core
from pkg.runtime.framework import PluginError


def job(
    name: str, step: str = "", *, container: str = "node", of_pods: str = "", beside: str = ""
) -> dict[str, Any]:
    containers = [{"name": each, "image": "base"} for each in (container, beside) if each]
    pod: dict[str, Any] = {"spec": {"containers": containers}}
    if of_pods:
        pod["metadata"] = {"labels": {LABEL_TRAIN_JOB_ANCESTOR: of_pods}}
    made: dict[str, Any] = {"name": name, "template": {"spec": {"template": pod}}}
    if step:
        made["template"]["metadata"] = {"labels": {LABEL_TRAIN_JOB_ANCESTOR: step}}
    return made


MPI: dict[str, Any] = {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/root/.ssh"}
TARGET = {"jobName": "node", "containerNames": ["node"]}
POLICIES: dict[str, dict[str, Any] | None] = {
    "no policy": None,
    "numNodes only": {},
    "torch": {"torch": {"numProcPerNode": "auto"}},
    "torch, no targets": {"torch": {"envInjection": {}}},
    "torch, a target": {"torch": {"envInjection": {"targets": [TARGET]}}},
    "mpi": {"mpi": {**MPI, "runLauncherAsNode": False}},
    "mpi, launcher trains": {"mpi": {**MPI, "runLauncherAsNode": True}},
    "jax": {"jax": {}},
    "xgboost": {"xgboost": {}},
    "flux": {"flux": {"numProcPerNode": 1}},
}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "node": [job("node", ANCESTOR_TRAINER)],
    "no label": [job("node")],
    "label of pods": [job("node", of_pods=ANCESTOR_TRAINER)],
    "another container": [job("node", ANCESTOR_TRAINER, container="main")],
    "another name": [job("workers", ANCESTOR_TRAINER)],
    "launcher trains": [job("launcher", ANCESTOR_TRAINER), job("node")],
    "launcher and node train": [job("launcher", ANCESTOR_TRAINER), job("node", ANCESTOR_TRAINER)],
    "launcher alone": [job("launcher", ANCESTOR_TRAINER)],
    "node trains": [job("launcher"), job("node", ANCESTOR_TRAINER)],
    "sidecar": [job("node", ANCESTOR_TRAINER, container="side", beside="node")],
    "two trainers": [job("a", ANCESTOR_TRAINER), job("b", ANCESTOR_TRAINER)],
    "initializer": [
        job(DATASET_INITIALIZER, DATASET_INITIALIZER, container=DATASET_INITIALIZER),
        job("node", ANCESTOR_TRAINER),
    ],
}
FIELDS: dict[str, Any] = {
    "numNodes": 5,
    "image": "mine",
    "command": ["run"],
    "args": ["x"],
    "env": [{"name": "A", "value": "b"}],
    "resourcesPerNode": {"limits": {"cpu": "3"}},
    "numProcPerNode": 4,
}
UNREAD = ("flux", "torch, a target")
"""Policies that use fields for a script or for variables, although no container of the trainer gets these fields."""


@pytest.mark.parametrize("version", [V2_1, V2_3])
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_field_of_the_trainer_has_an_effect_or_a_remark(policy: str, version: str) -> None:
    silent, wrong = [], []
    for shape, jobs in SHAPES.items():
        spec: dict[str, Any] = {"template": {"spec": {"replicatedJobs": copy.deepcopy(jobs)}}}
        if (named := POLICIES[policy]) is not None:
            spec["mlPolicy"] = {"numNodes": 2, **named}
        made = ClusterTrainingRuntime.from_dict({"metadata": {"name": "runtime"}, "spec": spec})
        runtimes = await core.new(FakeClient(made), FakeClient(), cfg=defaulted(version))
        runtime = runtimes["ClusterTrainingRuntime.trainer.kubeflow.org"]

        async def built(trainer: dict[str, Any] | None) -> tuple[list[Any], list[str], bool]:
            of_job = {"runtimeRef": {"name": "runtime"}, "suspend": True, "trainer": trainer}
            metadata = {"name": "job", "namespace": "ns", "uid": "u"}
            train_job = TrainJob.from_dict({"metadata": metadata, "spec": of_job})
            objects = await runtime.new_objects(train_job)  # noqa: B023
            warnings, errors = await runtime.validate_objects(None, train_job)  # noqa: B023
            found = [each.to_dict() for each in objects if not isinstance(each, Secret)]
            return found, [each for each in warnings if "no effect" in each], bool(errors)

        try:
            without, _, _ = await built(None)
        except PluginError:
            continue  # the target of envInjection is missing
        for name, value in FIELDS.items():
            objects, remarks, is_refused = await built({name: value})
            if objects == without and not remarks and not is_refused:
                silent.append((shape, name))
            remarks = [each for each in remarks if "on the workers" not in each]
            if objects != without and remarks and policy not in UNREAD:
                wrong.append((shape, name, remarks))
    assert (silent, wrong) == ([], [])
