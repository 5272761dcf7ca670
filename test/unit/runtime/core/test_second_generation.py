# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Deliberate differences from Trainer v2.3 in the objects and verdicts of the second API generation."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import quantity

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.runtime import Runtime, core, runtime_for
from pkg.runtime.framework import PluginError
from testkit.builders import runtime_patch

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


PROCESSES = [
    ({"requests": {"cpu": "2"}}, {"limits": {"cpu": "16"}}, 0, 16),
    ({"limits": {"cpu": "2"}}, {"requests": {"cpu": "500m"}}, 0, 1),
    ({"requests": {"cpu": "6"}}, {"limits": {"memory": "1Gi"}}, 0, 6),
    ({"limits": {"amd.com/gpu": "4"}}, {"limits": {"nvidia.com/gpu": "2"}}, 2, 1),
    ({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}, TWO_GPUS, 2, 1),
    ({"limits": {"nvidia.com/gpu": "8", "cpu": "3"}}, {"limits": {"nvidia.com/gpu": "0"}}, 0, 3),
    ({"limits": {"nvidia.com/gpu": "8", "cpu": "3"}}, {"limits": {"cpu": "5"}}, 8, 5),
    ({"limits": {"nvidia.com/gpu": "8", "cpu": "3"}}, {}, 8, 3),
]
"""Resources of the runtime and the TrainJob, and the GPUs and CPUs that version 2.3 counts."""


@pytest.mark.parametrize(("present", "wanted", "gpus", "cpus"), PROCESSES)
async def test_resources_that_the_train_job_names_are_counted_from_the_train_job_alone(
    present: dict[str, Any], wanted: dict[str, Any], gpus: int, cpus: int
) -> None:
    """As in Trainer v2.3. Unlike there, the other resources of the container are counted, too."""

    async def built(policy: dict[str, Any], version: str) -> dict[str, dict[str, Any]]:
        spec = {"trainer": {"resourcesPerNode": wanted}}
        runtime, train_job = await served(policy, {"resources": present}, spec, version)
        return {each.gvk.kind: each.to_dict() for each in await runtime.new_objects(train_job)}

    def variable(job_set: dict[str, Any], name: str) -> str:
        (job,) = job_set["spec"]["replicatedJobs"]
        return variables(job["template"]["spec"]["template"]["spec"]["containers"][0])[name]

    own = {**wanted.get("limits", {}), **wanted.get("requests", {})}
    own_gpus = next((int(amount) for name, amount in own.items() if "gpu" in name), 0)
    own_cpus = max(1, quantity.value(own.get("cpu", "0")))
    for version, count, otherwise in (("2.1", own_gpus, own_cpus), ("2.3", gpus, cpus)):
        torch = await built({"torch": {}}, version)
        assert variable(torch["JobSet"], "PET_NPROC_PER_NODE") == ("auto" if count else str(otherwise))
        mpi = await built({"mpi": {}}, version)
        assert f"slots={max(count, 1)}\n" in mpi["ConfigMap"]["data"]["hostfile"]
    xgboost = await built({"xgboost": {}}, "2.3")
    assert variable(xgboost["JobSet"], "DMLC_NUM_WORKER") == str(max(gpus, 1))
    flux = await built({"flux": {}}, "2.3")
    assert (f' -g {gpus}"' if gpus else '-n 1"') in flux["ConfigMap"]["data"]["entrypoint.sh"]


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


@pytest.mark.parametrize(("manager", "refused"), [("acme.io/foo", True), ("kueue.x-k8s.io/manager", False)])
async def test_only_kueues_empty_patch_may_come_and_go_while_the_train_job_runs(
    manager: str, refused: bool
) -> None:
    empty = runtime_patch(manager, spec={})
    runtime, without = await served({"torch": {}}, {}, {})
    _, with_patch = await served({"torch": {}}, {}, {"runtimePatches": [empty]})
    for old, new in ((without, with_patch), (with_patch, without)):
        _, errors = await runtime.validate_objects(old, new)
        assert bool(errors) is refused


async def test_the_names_of_a_missing_injection_target_are_quoted() -> None:
    targets = [{"jobName": 'a"', "containerNames": ["b\n"]}]
    runtime, train_job = await served({"torch": {"envInjection": {"targets": targets}}}, {}, {})
    problem = 'envInjection target podSet "a\\"" container "b\\n" not found in runtime template'

    _, errors = await runtime.validate_objects(None, train_job)

    assert [error.detail for error in errors] == [problem]
    with pytest.raises(PluginError) as raised:
        await runtime.new_objects(train_job)
    assert str(raised.value) == problem


@pytest.mark.parametrize(
    ("present", "wanted", "refused"),
    [
        pytest.param("1", {"requests": {"cpu": "1"}}, {"2.1": True, "2.3": False}, id="the runtime's"),
        pytest.param(
            "8", {"limits": {"amd.com/gpu": "1"}}, {"2.1": False, "2.3": False}, id="the TrainJob's"
        ),
    ],
)
async def test_validation_counts_the_gpus_as_the_build_does(
    present: str, wanted: dict[str, Any], refused: dict[str, bool]
) -> None:
    """QLoRA of a small model needs one device. The runtime's is lost in version 2.1, and is merged in version 2.3."""
    arguments = ["model.lora_attn_modules=[q_proj]", "model.quantize_base=True"]
    trainer = {"numNodes": 1, "numProcPerNode": "auto", "command": ["tune", "run"], "args": arguments}
    gpus = {"resources": {"limits": {"nvidia.com/gpu": present}}}
    for version in ("2.1", "2.3"):
        spec = {"trainer": {**trainer, "resourcesPerNode": wanted}}
        runtime, train_job = await served({"torch": {}}, gpus, spec, version, "torchtune-llama3.2-1b")
        warnings, errors = await runtime.validate_objects(None, train_job)
        assert warnings == []
        fields = ["spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"]
        assert [error.field for error in errors] == (fields if refused[version] else [])


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
    patch = runtime_patch("example.com/team", {"containers": [{"name": "node", "volumeMounts": mounts}]})
    trained = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}

    only = await container({"torch": {}}, trained, {"runtimePatches": [patch]})

    assert {each["mountPath"] for each in only["volumeMounts"]} == {"/in", "/out", "/data"}
