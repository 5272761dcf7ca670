# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The messages with which an API server would refuse a document; test/integration/cli compares them with a server's."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime

from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.stored import schemas
from trainerctl.offline.verdict import Validator

VERSION = "trainer.kubeflow.org/v1alpha1"
JOB_SET = {
    "replicatedJobs": [
        {
            "name": "node",
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "a"}]}}}},
        }
    ]
}
LONG = "a" * 64
MANAGER = (
    'spec.managedBy: Invalid value: "me": ManagedBy must be trainer.kubeflow.org/trainjob-controller or '
    "kueue.x-k8s.io/multikueue if set"
)
NAME = "<nil>: Invalid value: metadata.name must be no more than 63 characters"


@pytest.mark.parametrize(
    ("version", "name", "spec", "message"),
    [
        pytest.param(VERSION, "job", {}, "", id="valid"),
        pytest.param(
            VERSION,
            "job",
            {"managedBy": "me"},
            f'TrainJob.trainer.kubeflow.org "job" is invalid: {MANAGER}',
            id="one problem",
        ),
        pytest.param(
            VERSION,
            LONG,
            {"managedBy": "me"},
            f'TrainJob.trainer.kubeflow.org "{LONG}" is invalid: [{NAME}, {MANAGER}]',
            id="two problems",
        ),
        pytest.param(
            "trainer.kubeflow.org/v2",
            "job",
            {},
            'no matches for kind "TrainJob" in version "trainer.kubeflow.org/v2"',
            id="an unknown version",
        ),
    ],
)
async def test_several_problems_are_in_brackets_and_one_is_not(
    version: str, name: str, spec: dict[str, Any], message: str
) -> None:
    validator = Validator(schemas())
    await validator.start([])
    metadata = {"name": name, "namespace": "team-a"}
    spec = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    data = {"apiVersion": version, "kind": "TrainJob", "metadata": metadata, "spec": spec}

    verdict = await validator.judge(InputObject(data, "job.yaml", 1))

    assert verdict.message == message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mine", None),
        ("torch-distributed", ""),  # shipped, but not in the cluster
        ("namespaced", "there is a TrainingRuntime namespaced"),
    ],
)
async def test_a_missing_runtime_is_read_from_the_cluster(name: str, hint: str | None) -> None:
    spec = {"template": {"spec": JOB_SET}}
    cluster = FakeClient(
        ClusterTrainingRuntime.from_dict({"metadata": {"name": "mine"}, "spec": spec}),
        TrainingRuntime.from_dict({"metadata": {"name": "namespaced", "namespace": "team-a"}, "spec": spec}),
    )
    validator = Validator(schemas(), "team-a", cluster=cluster)
    await validator.start([])
    data = {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {"runtimeRef": {"name": name}},
    }

    verdict = await validator.judge(InputObject(data, "job.yaml", 1))

    assert verdict.is_valid == (hint is None)
    assert (hint or "") in " ".join(verdict.warnings)
    assert ("there is a" in " ".join(verdict.warnings)) == bool(hint)
