# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.quantity import IntOrString

from pkg.apis.jobset.v1alpha2 import JobSet, ReplicatedJob
from pkg.apis.trainer.v1alpha1 import MLPolicy, TorchMLPolicySource, Trainer, TrainJob
from pkg.runtime import core as runtimes
from pkg.runtime.framework import core as framework
from pkg.runtime.framework.plugins import jobset, torch
from pkg.runtime.framework.plugins.torch import torchtune
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

LORA = ["model.lora_attn_modules=[q_proj]"]
QLORA = [*LORA, "model.quantize_base=True"]
DORA = [*QLORA, "model.use_dora=True"]


def job(runtime: str = "torchtune-llama3.2-1b", **trainer: Any) -> TrainJob:
    return make_train_job(
        "team-a", "job", runtime=runtime, trainer=Trainer(command=["tune", "run"], **trainer)
    )


def gpus(number: int) -> ResourceRequirements:
    return ResourceRequirements(limits={"nvidia.com/gpu": str(number)})


@pytest.fixture
def served() -> runtimes.TrainingRuntime:
    client = FakeClient()
    return runtimes.TrainingRuntime(framework.Framework([torch.Torch(), jobset.JobSetPlugin(client)]), client)


async def command(
    served: runtimes.TrainingRuntime, train_job: TrainJob, *arguments: str, nodes: int = 1
) -> list[str]:
    node = make_replicated_job("node", ancestor="trainer")
    [container] = node.template.spec.template.spec.containers or []
    container.command = ["tune", "run", *arguments]
    spec = make_training_runtime_spec(
        node, ml_policy=MLPolicy(num_nodes=nodes, torch=TorchMLPolicySource(num_proc_per_node="auto"))
    )
    (job_set,) = await served.objects_from(spec, train_job)
    assert isinstance(job_set, JobSet)
    return _command_of(*(job_set.spec.replicated_jobs or ()))


def _command_of(node: ReplicatedJob) -> list[str]:
    [container] = node.template.spec.template.spec.containers or []
    return container.command or []


@pytest.mark.parametrize(
    ("nodes", "processes", "devices", "args", "recipe", "config"),
    [
        (1, 1, 0, [], "full_finetune_single_device", "full_single_device"),
        (1, "auto", 1, LORA, "lora_finetune_single_device", "lora_single_device"),
        (1, 2, 1, QLORA, "lora_finetune_single_device", "qlora_single_device"),
        (1, 2, 2, [], "full_finetune_distributed", "full"),
        (1, "auto", 2, LORA, "lora_finetune_distributed", "lora"),
        (1, 2, 0, QLORA, "lora_finetune_distributed", "qlora"),
        (1, 2, 0, DORA, "lora_finetune_distributed", "lora"),
        (1, 2, 0, ["model.quantize_base=True"], "lora_finetune_distributed", "qlora"),
        (2, 1, 1, QLORA, "full_finetune_distributed", "full_multinode"),
        (0, 1, 1, LORA, "full_finetune_distributed", "full"),
        (1, "1", 2, [], "full_finetune_distributed", "full"),
    ],
)
def test_recipe_and_configuration(
    nodes: int, processes: IntOrString, devices: int, args: list[str], recipe: str, config: str
) -> None:
    train_job = job(args=args)
    assert train_job.spec.trainer is not None

    plan = torchtune.plan(train_job, nodes, processes, devices)

    assert (plan.recipe, plan.config) == (recipe, f"llama3_2/1B_{config}")


@pytest.mark.parametrize(
    ("runtime", "model"),
    [
        ("torchtune-llama3.3-70b", "llama3_3/70B"),
        ("a-b.c.d-e", "b_c_d/E"),
        ("torchtune-llama3.2", ""),
        ("my-torchtune-llama3.2-1b", ""),
        ("--", "/"),
    ],
)
def test_the_runtimes_name_tells_the_model(runtime: str, model: str) -> None:
    train_job = job(runtime)
    assert train_job.spec.trainer is not None

    assert torchtune.plan(train_job, 1, 1, 1).model == model


@pytest.mark.parametrize(
    ("train_job", "meets"),
    [
        pytest.param(job(num_proc_per_node=1), False, id="one process"),
        pytest.param(job(num_proc_per_node=2), True, id="two processes"),
        pytest.param(job(num_proc_per_node=1, num_nodes=2), True, id="two nodes"),
        pytest.param(job(num_proc_per_node="auto", resources_per_node=gpus(1)), False, id="one device"),
        pytest.param(job(num_proc_per_node="auto", resources_per_node=gpus(2)), True, id="two devices"),
        pytest.param(
            job(num_proc_per_node=1, resources_per_node=gpus(2)),
            False,
            id="the number says more than the devices",
        ),
    ],
)
async def test_there_is_a_rendezvous_where_there_is_somebody_to_meet(
    served: runtimes.TrainingRuntime, train_job: TrainJob, meets: bool
) -> None:
    made = await command(served, train_job)

    assert ("--rdzv_endpoint=job-node-0-0.job:29500" in made) is meets


async def test_the_runtime_says_where_things_lie_and_nothing_else(served: runtimes.TrainingRuntime) -> None:
    made = await command(
        served,
        job(num_proc_per_node=1),
        "--config=other",
        "output_dir=/out",
        "epochs=3",
        "tokenizer.path=/a=b",
        "tokenizer.pathology=x",
        "tokenizer.merges_file=/merges",
        "checkpointer.checkpoint_dir=/model",
    )

    assert made == [
        *("tune", "run", "full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"),
        *("output_dir=/out", "tokenizer.path=/a=b", "tokenizer.merges_file=/merges"),
        "checkpointer.checkpoint_dir=/model",
    ]


async def test_the_train_jobs_own_command_stays_as_it_is(served: runtimes.TrainingRuntime) -> None:
    train_job = job(num_proc_per_node=1)
    before = train_job.to_json()

    assert await command(served, train_job) == await command(served, train_job)
    assert train_job.to_json() == before


async def test_nodes_of_the_runtime_count(served: runtimes.TrainingRuntime) -> None:
    assert "llama3_2/1B_full_multinode" in await command(served, job(num_proc_per_node=1), nodes=2)


async def test_another_command_is_not_torchtunes(served: runtimes.TrainingRuntime) -> None:
    for other in (["tune"], ["tune", "run", "x"], ["tune", "cp"]):
        train_job = job(num_proc_per_node=1)
        assert train_job.spec.trainer is not None
        train_job.spec.trainer.command = other
        assert await command(served, train_job) == other


@pytest.mark.parametrize(
    ("train_job", "errors"),
    [
        pytest.param(
            job(num_proc_per_node=1),
            [
                (
                    "spec.trainer.numNodes: Required value: must be set along with numProcPerNode "
                    "for a TorchTune TrainJob"
                )
            ],
            id="processes without nodes",
        ),
        pytest.param(job(num_nodes=2), [], id="nodes without processes"),
        pytest.param(
            job("torchtune-llama3.3-70b", num_nodes=2, num_proc_per_node=8), [], id="the model for many nodes"
        ),
        pytest.param(
            job("custom", num_nodes=2, num_proc_per_node=1),
            [
                (
                    'spec.runtimeRef.name: Invalid value: "custom": must have a supported pretrained model, '
                    "invalid model configured: "
                ),
                "spec.trainer.numNodes: Invalid value: 2: must be 1 for  model",
            ],
            id="no model",
        ),
        pytest.param(
            job(num_nodes=1, num_proc_per_node="auto", args=QLORA, resources_per_node=gpus(1)),
            [],
            id="QLoRA on one device",
        ),
        pytest.param(
            job(num_nodes=1, num_proc_per_node=2, args=QLORA),
            [
                (
                    "spec.trainer.numProcPerNode: Invalid value: 2: must be auto or 1 for llama3_2/1B model "
                    "when using QLoRA"
                ),
                (
                    "spec.trainer.resourcesPerNode: Invalid value: null: must have gpu resource with value 1 "
                    "for llama3_2/1B model when using QLoRA"
                ),
            ],
            id="QLoRA on two devices",
        ),
        pytest.param(
            job("torchtune-qwen2.5-1.5b", num_nodes=1, num_proc_per_node=1, args=QLORA),
            [
                (
                    'spec.runtimeRef.name: Invalid value: "torchtune-qwen2.5-1.5b": QLoRA is not supported for '
                    "qwen2_5/1.5B model"
                )
            ],
            id="QLoRA of a model that has none",
        ),
    ],
)
async def test_validation(served: runtimes.TrainingRuntime, train_job: TrainJob, errors: list[str]) -> None:
    spec = make_training_runtime_spec(ml_policy=MLPolicy(torch=TorchMLPolicySource()))

    _, found = await served.validate_against(spec, None, train_job)

    assert list(map(str, found)) == errors
