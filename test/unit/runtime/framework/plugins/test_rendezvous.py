# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The address at which the nodes meet is the host name that the JobSet controller gives to the trainer's first pod."""

from __future__ import annotations

import re
from typing import Any

import pytest
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.runtime import core, runtime_for

TRAINER = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
TUNE = {"command": ["tune", "run"], "numNodes": 2, "numProcPerNode": 2}


async def built(policy: dict[str, Any], spec: dict[str, Any], trainer: dict[str, Any]) -> str:
    """Return the objects of a TrainJob as one text."""
    name = "torchtune-llama3.3-70b"
    metadata = {"namespace": "team-a", "name": name}
    runtime = {
        "metadata": metadata,
        "spec": {"mlPolicy": {"numNodes": 2, **policy}, "template": {"spec": spec}},
    }
    client = FakeClient(TrainingRuntime.from_dict(runtime))
    ref = {"name": name, "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    metadata = {"namespace": "team-a", "name": "job", "uid": "u"}
    job = TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": ref, "trainer": trainer}})
    runtimes = await core.new(client, client)
    return str(
        [each.to_dict() for each in await runtime_for(runtimes, job.spec.runtime_ref).new_objects(job)]
    )


def job(name: str, labels: dict[str, str] | None = None, container: str = "node") -> dict[str, Any]:
    pod = {"containers": [{"name": container, "image": "busybox"}]}
    return {
        "name": name,
        "template": {"metadata": {"labels": labels or {}}, "spec": {"template": {"spec": pod}}},
    }


POLICIES = [
    pytest.param({"torch": {}}, {}, "PET_MASTER_ADDR', 'value': '{}'", id="torch"),
    pytest.param({"torch": {}}, TUNE, "--rdzv_endpoint={}:29500'", id="torchtune"),
    pytest.param({"jax": {}}, {}, "JAX_COORDINATOR_ADDRESS', 'value': '{}:29500'", id="jax"),
    pytest.param({"xgboost": {}}, {}, "DMLC_TRACKER_URI', 'value': '{}'", id="xgboost"),
]


@pytest.mark.parametrize(("policy", "trainer", "text"), POLICIES)
@pytest.mark.parametrize(
    ("name", "network", "host"),
    [
        ("node", None, "job-node-0-0.job"),
        ("node", {}, "job-node-0-0.job"),
        ("node", {"subdomain": ""}, "job-node-0-0.job"),  # JobSet's controller then uses the JobSet's name
        ("worker", None, "job-worker-0-0.job"),
        ("worker", {"subdomain": "mesh"}, "job-worker-0-0.mesh"),
    ],
)
async def test_the_nodes_meet_at_the_trainers_first_pod(
    policy: dict[str, Any], trainer: dict[str, Any], text: str, name: str, network: Any, host: str
) -> None:
    spec = {"network": network, "replicatedJobs": [job("other"), job(name, TRAINER)]}
    assert text.format(host) in await built(policy, spec, trainer)


async def test_containers_of_env_injection_meet_there_too() -> None:
    policy = {"torch": {"envInjection": {"targets": [{"jobName": "side", "containerNames": ["main"]}]}}}
    spec = {"replicatedJobs": [job("worker", TRAINER), job("side", container="main")]}
    found = await built(policy, spec, {})
    assert re.findall(r"PET_MASTER_ADDR', 'value': '(\S+)'", found) == ["job-worker-0-0.job"] * 2


async def test_without_the_trainers_label_the_job_is_called_node_as_upstream() -> None:
    policy = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["node"]}]}}}
    found = await built(policy, {"network": {"subdomain": "mesh"}, "replicatedJobs": [job("node")]}, {})
    assert "'value': 'job-node-0-0.mesh'" in found


@pytest.mark.parametrize(("network", "domain"), [(None, "job"), ({"subdomain": "mesh"}, "mesh")])
async def test_the_brokers_of_flux_are_in_the_subdomain(network: Any, domain: str) -> None:
    spec = {"network": network, "replicatedJobs": [job("node", TRAINER)]}
    assert f"tcp://%h.{domain}.team-a.svc.cluster.local:%p" in await built({"flux": {}}, spec, {})


@pytest.mark.parametrize(
    ("network", "domain"), [(None, "job"), ({"subdomain": "mesh"}, "mesh"), ({"subdomain": ""}, "job")]
)
async def test_the_host_file_of_mpi_has_the_names_of_the_pods(network: Any, domain: str) -> None:
    spec = {"network": network, "replicatedJobs": [job("launcher", TRAINER), job("node")]}
    assert f"job-node-0-0.{domain} slots=1" in await built({"mpi": {}}, spec, {})
