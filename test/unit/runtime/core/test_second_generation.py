# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deliberate differences from Trainer v2.3 in the objects and verdicts of the second API generation."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.runtime import Runtime, core, runtime_for
from pkg.runtime.framework import PluginError

LABELS = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
TWO_GPUS = {"limits": {"nvidia.com/gpu": "2"}}
ONLY_CPU = {"resourcesPerNode": {"requests": {"cpu": "1"}}}


async def served(
    policy: dict[str, Any],
    trained: dict[str, Any],
    spec: dict[str, Any],
    version: str = "2.3",
    name: str = "runtime",
) -> tuple[Runtime, TrainJob]:
    """Return the runtime for a TrainJob, and the TrainJob."""
    containers = [{"name": "node", "image": "busybox", **trained}]
    pod = {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}]}
    job = {"name": "node", "template": {"metadata": {"labels": LABELS}, "spec": {"template": {"spec": pod}}}}
    metadata = {"namespace": "team-a", "name": name}
    template = {"spec": {"replicatedJobs": [job]}}
    runtime = {"metadata": metadata, "spec": {"mlPolicy": policy, "template": template}}
    client = FakeClient(TrainingRuntime.from_dict(runtime))
    ref = {"name": name, "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    metadata = {"namespace": "team-a", "name": "job", "uid": "u"}
    train_job = TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": ref, **spec}})
    runtimes = await core.new(client, client, cfg=defaulted(version))
    return runtime_for(runtimes, train_job.spec.runtime_ref), train_job


async def container(
    policy: dict[str, Any], trained: dict[str, Any], spec: dict[str, Any], version: str = "2.3"
) -> dict[str, Any]:
    """Return the container of the trainer in the JobSet of a TrainJob."""
    runtime, train_job = await served(policy, trained, spec, version)
    (job_set,) = [each for each in await runtime.new_objects(train_job) if isinstance(each, JobSet)]
    (built,) = job_set.to_dict()["spec"]["replicatedJobs"]
    (only,) = built["template"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def variables(only: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in only["env"]}


@pytest.mark.parametrize(
    ("policy", "variable", "replaced", "merged"),
    [
        ({"torch": {}}, "PET_NPROC_PER_NODE", "1", "auto"),  # torchrun counts the GPUs
        ({"xgboost": {}}, "DMLC_NUM_WORKER", "1", "2"),
    ],
)
async def test_gpus_are_those_that_the_container_gets(
    policy: dict[str, Any], variable: str, replaced: str, merged: str
) -> None:
    """The TrainJob's resources replace the runtime's in version 2.1, and are merged into them in version 2.3."""
    for version, gpus, processes in (("2.1", False, replaced), ("2.3", True, merged)):
        only = await container(policy, {"resources": TWO_GPUS}, {"trainer": ONLY_CPU}, version)

        assert ("nvidia.com/gpu" in only["resources"].get("limits", {})) == gpus
        assert variables(only)[variable] == processes


async def test_an_empty_value_counts_no_gpus_in_version_2_1() -> None:
    """For empty resources, Trainer v2.1 keeps the container's resources, but counts the GPUs in the TrainJob's."""
    trainer: dict[str, Any] = {"trainer": {"resourcesPerNode": {}}}
    for version, processes in (("2.1", "1"), ("2.3", "auto")):
        only = await container({"torch": {}}, {"resources": TWO_GPUS}, trainer, version)

        assert only["resources"] == TWO_GPUS
        assert variables(only)["PET_NPROC_PER_NODE"] == processes


@pytest.mark.parametrize(
    ("manager", "reason"),
    [
        ("", "Required value"),
        ("team", 'Invalid value: "team": must be a domain-prefixed path (such as "acme.io/foo")'),
    ],
)
async def test_the_manager_of_a_patch_is_a_domain_prefixed_path(manager: str, reason: str) -> None:
    patches = {"runtimePatches": [{"manager": manager}]}
    runtime, train_job = await served({"torch": {}}, {}, patches)

    _, errors = await runtime.validate_objects(None, train_job)

    assert [str(error) for error in errors] == [f"spec.runtimePatches.manager: {reason}"]


async def test_the_names_of_a_missing_injection_target_are_quoted() -> None:
    targets = [{"jobName": 'a"', "containerNames": ["b\n"]}]
    runtime, train_job = await served({"torch": {"envInjection": {"targets": targets}}}, {}, {})
    problem = 'envInjection target podSet "a\\"" container "b\\n" not found in runtime template'

    _, errors = await runtime.validate_objects(None, train_job)

    assert [error.detail for error in errors] == [problem]
    with pytest.raises(PluginError) as raised:
        await runtime.new_objects(train_job)
    assert str(raised.value) == problem


async def test_validation_counts_the_gpus_that_the_container_gets() -> None:
    """QLoRA of a small model needs one device. The runtime's is lost in version 2.1, and is merged in version 2.3."""
    arguments = ["model.lora_attn_modules=[q_proj]", "model.quantize_base=True"]
    trainer = {"numNodes": 1, "numProcPerNode": "auto", "command": ["tune", "run"], "args": arguments}
    one_gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    refused: dict[str, list[str]] = {}
    for version in ("2.1", "2.3"):
        spec = {"trainer": {**trainer, **ONLY_CPU}}
        runtime, train_job = await served({"torch": {}}, one_gpu, spec, version, "torchtune-llama3.2-1b")
        warnings, errors = await runtime.validate_objects(None, train_job)
        assert warnings == []
        refused[version] = [str(error).partition(":")[0] for error in errors]

    assert refused == {"2.1": ["spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"], "2.3": []}


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ({"jax": {}}, {"JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job:29500"}),
        ({"xgboost": {}}, {"DMLC_NUM_WORKER": "4", "DMLC_TRACKER_URI": "job-node-0-0.job"}),
    ],
)
async def test_nodes_find_each_other_without_a_trainer(
    policy: dict[str, Any], wanted: dict[str, str]
) -> None:
    only = await container({"numNodes": 2, **policy}, {"resources": TWO_GPUS}, {})

    assert wanted.items() <= variables(only).items()


async def test_a_patch_may_mount_a_volume_twice() -> None:
    mounts = [{"name": "data", "mountPath": path} for path in ("/in", "/out")]
    pod = {"spec": {"containers": [{"name": "node", "volumeMounts": mounts}]}}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pod}}}]}}
    patch = {"manager": "example.com/team", "trainingRuntimeSpec": {"template": template}}
    trained = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}

    only = await container({"torch": {}}, trained, {"runtimePatches": [patch]})

    assert {each["mountPath"] for each in only["volumeMounts"]} == {"/in", "/out", "/data"}
