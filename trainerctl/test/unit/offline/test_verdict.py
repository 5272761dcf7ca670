# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The messages with which an API server would refuse a document; test/integration/cli compares them with a server's."""

from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient
from testkit.builders import train_job_document, written_cluster_runtime, written_runtime

from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.stored import schemas
from trainerctl.offline.verdict import Validator

LONG = "a" * 64
MANAGER = (
    'spec.managedBy: Invalid value: "me": ManagedBy must be trainer.kubeflow.org/trainjob-controller or '
    "kueue.x-k8s.io/multikueue if set"
)
NAME = "<nil>: Invalid value: metadata.name must be no more than 63 characters"


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        pytest.param("job", MANAGER, id="one problem"),
        pytest.param(LONG, f"[{NAME}, {MANAGER}]", id="two problems"),
    ],
)
async def test_several_problems_are_in_brackets_and_one_is_not(name: str, problems: str) -> None:
    validator = Validator(schemas())
    await validator.start([])
    data = train_job_document("team-a", "torch-distributed", name=name, managedBy="me")

    verdict = await validator.judge(InputObject(data, "job.yaml", 1))

    assert verdict.message == f'TrainJob.trainer.kubeflow.org "{name}" is invalid: {problems}'


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mine", None),
        ("torch-distributed", ""),  # shipped, but not in the cluster
        ("namespaced", "there is a TrainingRuntime namespaced"),
    ],
)
async def test_a_missing_runtime_is_read_from_the_cluster(name: str, hint: str | None) -> None:
    cluster = FakeClient(written_cluster_runtime("mine"), written_runtime("team-a", "namespaced"))
    validator = Validator(schemas(), "team-a", cluster=cluster)
    await validator.start([])

    verdict = await validator.judge(InputObject(train_job_document("team-a", name), "job.yaml", 1))

    assert verdict.is_valid == (hint is None)
    assert (hint or "") in " ".join(verdict.warnings)
    assert ("there is a" in " ".join(verdict.warnings)) == bool(hint)
