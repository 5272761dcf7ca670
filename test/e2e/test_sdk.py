# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubeflow SDK, as released, finds our runtimes and trains with our manager."""

import os
from pathlib import Path

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.machinery import GVK, unstructured
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.tools import DEFAULT_JOBSET

from pkg import shipped
from testkit import programs

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JOBSET = os.environ.get("CLUSTER_JOBSET", DEFAULT_JOBSET)

VERSIONS = [
    pytest.param(release, marks=[pytest.mark.nightly] if release in programs.NIGHTLY else [])
    for release in programs.SDKS
]
TUNED = "torchtune-llama3.2-1b"
CLAIM = unstructured(GVK("", "v1", "PersistentVolumeClaim"))
# The SDK's own interpreter runs this: nothing of this project is imported.
SCRIPT = """
import json, sys, time
from kubeflow.trainer import (
    BuiltinTrainer, CustomTrainer, HuggingFaceDatasetInitializer, HuggingFaceModelInitializer, Initializer,
    KubernetesBackendConfig, TorchTuneConfig, TrainerClient,
)


def train():
    print("training")


kubeconfig, namespace, tuned, awaited = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
runtimes = {r.name: r for r in client.list_runtimes()}
asked = {
    "custom": dict(
        runtime=client.get_runtime("torch-distributed"),
        trainer=CustomTrainer(func=train, num_nodes=2, resources_per_node={"cpu": 1}),
    ),
    "builtin": dict(
        runtime=client.get_runtime(tuned),
        trainer=BuiltinTrainer(config=TorchTuneConfig(epochs=1, batch_size=4, resources_per_node={"gpu": 2})),
        initializer=Initializer(
            dataset=HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca/data"),
            model=HuggingFaceModelInitializer(
                storage_uri="hf://meta-llama/Llama-3.2-1B-Instruct", access_token="secret"
            ),
        ),
    ),
    "mpi": dict(
        runtime=client.get_runtime("deepspeed-distributed"),
        trainer=CustomTrainer(func=train, num_nodes=2, resources_per_node={"cpu": 1}),
    ),
}
names = {kind: client.train(**given) for kind, given in asked.items()}
said = {}
for kind, name in names.items():
    seen = [client.get_job(name).status]
    job = client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=60, polling_interval=1)
    seen.append(job.status)
    followed = "\\n".join(client.get_job_logs(name, follow=True))  # ends with the pod
    job = client.wait_for_job_status(name, timeout=60, polling_interval=1)
    said[kind] = {
        "name": name,
        "seen": seen,
        "status": job.status,
        "num_nodes": job.num_nodes,
        "runtime": job.runtime.name,
        "steps": sorted(step.name for step in job.steps),
        "followed": followed,
        "log": "\\n".join(client.get_job_logs(name)),
    }
    if hasattr(client, "get_job_events"):
        for _ in range(60 if awaited else 1):  # a controller sends its events after it has written the status
            events = {(event.involved_object_kind, event.reason) for event in client.get_job_events(name)}
            if ("JobSet", awaited) in events:
                break
            time.sleep(0.5)
        said[kind]["events"] = sorted(events)
listed = sorted(j.name for j in client.list_jobs())
of_runtime = [j.name for j in client.list_jobs(runtime=client.get_runtime(tuned))]
for name in names.values():
    client.delete_job(name)
print(json.dumps({
    "runtimes": {n: [r.trainer.framework, r.trainer.num_nodes] for n, r in runtimes.items()},
    "jobs": said,
    "listed": listed == sorted(names.values()),
    "of_runtime": of_runtime == [names["builtin"]],
    "left": [j.name for j in client.list_jobs()],
}))
"""
STEPS = {
    "custom": ("torch-distributed", 2, ["node-0", "node-1"]),
    "builtin": (TUNED, 1, ["dataset-initializer", "model-initializer", "node-0"]),
    "mpi": ("deepspeed-distributed", 2, ["node-0", "node-1"]),  # the launcher is a node too
}
"""For each way to train: the runtime, the number of nodes, and the steps that the SDK shows."""


@pytest.mark.parametrize("sdk", VERSIONS)
async def test_the_sdk_lists_runtimes_trains_in_every_way_and_tidies_up(
    local_cluster: Cluster,
    cluster_client: LiveClient,
    cluster_namespace: str,
    sdk: str,
    tmp_path: Path,
) -> None:
    (claim,) = [
        each
        for each in shipped.manifests("samples")
        if each["kind"] == "PersistentVolumeClaim" and each["metadata"]["name"] == TUNED
    ]
    claim["metadata"]["namespace"] = cluster_namespace
    await cluster_client.create(CLAIM.from_dict(claim))
    # SDK 0.2.0 cannot read events, and the others skip those without firstTimestamp, as JobSet 0.12 writes them.
    event = "AllJobsCompleted" if sdk != "0.2.0" and JOBSET != "0.12" else ""
    kubeconfig = str(local_cluster.kubeconfig)
    said = await programs.run_sdk(sdk, SCRIPT, tmp_path, kubeconfig, cluster_namespace, TUNED, event)
    listed = {
        each["metadata"]["name"]: [
            each["metadata"]["labels"]["trainer.kubeflow.org/framework"],
            each["spec"]["mlPolicy"]["numNodes"],
        ]
        for folder in ("runtimes", "runtimes/data-cache")
        for each in shipped.manifests(folder)
    }
    assert "torch-distributed" in listed
    assert said["runtimes"] == listed
    for kind, job in said["jobs"].items():
        runtime, nodes, steps = STEPS[kind]
        assert (job["runtime"], job["num_nodes"]) == (runtime, nodes)
        if kind == "mpi":  # the job ends with the launcher, and pods of nodes that still run are removed
            assert set(steps[:1]) <= set(job["steps"]) <= set(steps)
        else:
            assert job["steps"] == steps
    for job in said["jobs"].values():
        assert job["status"] == "Complete"
        for log in (job["followed"], job["log"]):
            assert "[simulated] rank=0" in log
            assert "step=10/10" in log
        assert set(job["seen"]) <= {"Created", "Running", "Complete"}
        if event:
            assert ["JobSet", event] in job["events"]
    assert said["listed"]
    assert said["of_runtime"]
    assert said["left"] == []
