# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import MLPolicy, TorchMLPolicySource, Trainer, TrainJob
from pkg.runtime import core as runtimes
from pkg.runtime import framework
from pkg.runtime.framework.plugins import jobset, torch
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec


@pytest.fixture
def served() -> runtimes.TrainingRuntime:
    client = FakeClient()
    return runtimes.TrainingRuntime(framework.Framework([torch.Torch(), jobset.JobSetPlugin(client)]), client)


@pytest.fixture
def train_job() -> TrainJob:
    trainer = Trainer(command=["tune", "run"], num_proc_per_node=1)
    return make_train_job("team-a", "job", runtime="torchtune-llama3.2-1b", trainer=trainer)


async def test_the_train_jobs_own_command_stays_as_it_is(
    served: runtimes.TrainingRuntime, train_job: TrainJob
) -> None:
    policy = MLPolicy(num_nodes=1, torch=TorchMLPolicySource(num_proc_per_node="auto"))
    spec = make_training_runtime_spec(make_replicated_job("node", ancestor="trainer"), ml_policy=policy)
    before = train_job.to_json()

    first, again = [await served.objects_from(spec, train_job) for _ in range(2)]

    assert first == again
    assert train_job.to_json() == before


async def test_processes_without_nodes_are_refused(
    served: runtimes.TrainingRuntime, train_job: TrainJob
) -> None:
    spec = make_training_runtime_spec(ml_policy=MLPolicy(torch=TorchMLPolicySource()))

    _, errors = await served.validate_against(spec, None, train_job)

    assert list(map(str, errors)) == [
        "spec.trainer.numNodes: Required value: must be set along with numProcPerNode for a TorchTune TrainJob"
    ]
