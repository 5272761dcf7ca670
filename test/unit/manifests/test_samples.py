# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every shipped runtime has a sample that its plugins admit, and the built objects have the sample's values."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core, runtime_for

CONFIG = Path(__file__).parents[3] / "config"


def documents(folder: str) -> list[dict[str, Any]]:
    files = sorted((CONFIG / folder).rglob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]


RUNTIMES = [each for each in documents("runtimes") if each["kind"] == "ClusterTrainingRuntime"]
SAMPLES = [each for each in documents("samples") if each["kind"] == "TrainJob"]


def as_stored(sample: dict[str, Any]) -> TrainJob:
    """Return a sample in a namespace, with the fields that the API server sets."""
    ref = {"apiGroup": TrainJob.gvk.group, "kind": "ClusterTrainingRuntime", **sample["spec"]["runtimeRef"]}
    metadata = {**sample["metadata"], "namespace": "team-a", "uid": "uid"}
    spec = {"suspend": False, **sample["spec"], "runtimeRef": ref}
    return TrainJob.from_dict({**sample, "metadata": metadata, "spec": spec})


@pytest.fixture
def client() -> FakeClient:
    own = [
        TrainingRuntime.from_dict({**each, "metadata": {**each["metadata"], "namespace": "team-a"}})
        for each in documents("samples")
        if each["kind"] == "TrainingRuntime"
    ]
    return FakeClient(*own, *map(ClusterTrainingRuntime.from_dict, RUNTIMES))


def test_every_shipped_runtime_has_a_sample() -> None:
    used = {each["spec"]["runtimeRef"]["name"] for each in SAMPLES}
    assert {each["metadata"]["name"] for each in RUNTIMES} <= used


@pytest.mark.parametrize("sample", [pytest.param(each, id=each["metadata"]["name"]) for each in SAMPLES])
async def test_a_sample_is_admitted_and_carried_out(sample: dict[str, Any], client: FakeClient) -> None:
    train_job = as_stored(sample)
    runtime = runtime_for(await core.new(client, client), train_job.spec.runtime_ref)

    assert await runtime.validate_objects(None, train_job) == ([], [])
    made = {obj.gvk.kind: obj.to_dict() for obj in await runtime.new_objects(train_job)}

    pods = {job["name"]: job["template"]["spec"] for job in made["JobSet"]["spec"]["replicatedJobs"]}
    wanted = (sample["spec"].get("trainer") or {}).get("numNodes")
    if "launcher" in pods:
        assert made.keys() == {"ConfigMap", "JobSet", "Secret"}
        assert len(made["ConfigMap"]["data"]["hostfile"].splitlines()) == wanted
    elif wanted is not None:
        assert made.keys() == {"JobSet"}
        assert pods["node"]["parallelism"] == wanted


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("llama-1b-full", ["full_finetune_distributed", "--config", "llama3_2/1B_full"]),
        ("llama-3b-qlora", ["lora_finetune_single_device", "--config", "llama3_2/3B_qlora_single_device"]),
        ("qwen-lora", ["lora_finetune_distributed", "--config", "qwen2_5/1.5B_lora"]),
    ],
)
async def test_a_torchtune_sample_gets_the_recipe_it_promises(
    name: str, arguments: list[str], client: FakeClient
) -> None:
    (sample,) = [each for each in SAMPLES if each["metadata"]["name"] == name]
    train_job = as_stored(sample)
    runtime = runtime_for(await core.new(client, client), train_job.spec.runtime_ref)

    (job_set,) = await runtime.new_objects(train_job)

    node = job_set.to_dict()["spec"]["replicatedJobs"][-1]["template"]["spec"]["template"]["spec"]
    command = node["containers"][0]["command"]
    start = command.index(arguments[0])
    assert command[start : start + 3] == arguments
    assert "output_dir=/workspace/output" in command
