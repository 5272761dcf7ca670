# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Releases of the Kubeflow SDK of both generations on one cluster: the options of each work, and each sees all TrainJobs.

Logs are not read: the simulated nodes have no kubelet.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.tools import DEFAULT_JOBSET

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import programs

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

JOBSET = os.environ.get("CLUSTER_JOBSET", DEFAULT_JOBSET)
VERSIONS = ("0.2.0", "0.3.1", "0.4.1", "0.5.0")
TO_SECOND = ("0.4.1", "0.5.0")
Document = dict[str, Any]
# The SDK's own interpreter runs this: nothing of this project is imported.
COMMON = """
import json, sys
from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient
from kubeflow.trainer.options import *

kubeconfig, namespace, *given = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))


def train():
    print("training")


def submit(*options):
    return client.train(
        runtime=client.get_runtime("torch-distributed"),
        trainer=CustomTrainer(func=train, num_nodes=1, resources_per_node={"cpu": 1}),
        options=list(options),
    )

"""
FIRST = """
node, = given
spec = PodSpecOverride(node_selector={"kubernetes.io/hostname": node})
metadata = {"annotations": {"sim.local/run-for": "3s"}}
placed = submit(
    PodTemplateOverrides(PodTemplateOverride(target_jobs=["node"], metadata=metadata, spec=spec)),
    SpecLabels({"from": "sdk"}),
)
print(json.dumps({"placed": placed}))
"""
SECOND = """
def patched(metadata, **spec):
    pod = PodTemplatePatch(metadata=metadata, spec=PodSpecPatch(**spec))
    job = ReplicatedJobPatch(name="node", template=JobTemplatePatch(spec=JobSpecPatch(template=pod)))
    template = JobSetTemplatePatch(metadata={"labels": {"from": "sdk"}}, spec=JobSetSpecPatch(replicated_jobs=[job]))
    return RuntimePatch(training_runtime_spec=TrainingRuntimeSpecPatch(template=template))


node, = given
selector = {"kubernetes.io/hostname": node}
jobs = {"placed": submit(patched({"annotations": {"sim.local/run-for": "3s"}}, node_selector=selector))}
if "ActiveDeadlineSeconds" in globals():
    endless = patched({"annotations": {"sim.local/run-for": "1h"}})
    jobs["late"] = submit(endless, ActiveDeadlineSeconds(seconds=5))
print(json.dumps(jobs))
"""
LOOK = """
import time
mine, late, awaited = given
if mine != late:
    client.wait_for_job_status(mine, timeout=90, polling_interval=1)
seen = {"listed": sorted(job.name for job in client.list_jobs()), "status": {}, "events": {}}
for name in seen["listed"]:
    status = {"Failed"} if name == late else {"Complete"}
    seen["status"][name] = client.wait_for_job_status(name, status=status, timeout=90, polling_interval=1).status
    if hasattr(client, "get_job_events"):
        for _ in range(60 if awaited and name != late else 1):  # a controller sends its events after the status
            reasons = {event.reason for event in client.get_job_events(name)}
            if awaited in reasons:
                break
            time.sleep(0.5)
        seen["events"][name] = sorted(reasons)
print(json.dumps(seen))
"""
DELETE = """
for name in given:
    client.delete_job(name)
print(json.dumps([job.name for job in client.list_jobs()]))
"""


@pytest.fixture
def run(local_cluster: Cluster, cluster_namespace: str, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a script with a release of the SDK, and returns its output."""

    async def started(release: str, text: str, *arguments: str) -> Any:
        given = [str(local_cluster.kubeconfig), cluster_namespace, *arguments]
        return await programs.run_sdk(release, COMMON + text, tmp_path, *given)

    return started


async def test_each_sdk_is_heard_and_sees_the_train_jobs_of_the_others(
    run: Callable[..., Any], cluster_client: LiveClient, cluster_namespace: str
) -> None:
    made: dict[str, Document] = {}
    nodes = {release: f"node-{number}" for number, release in enumerate(VERSIONS)}
    for release in VERSIONS:
        made[release] = await run(release, SECOND if release in TO_SECOND else FIRST, nodes[release])
    late = made["0.5.0"]["late"]
    names = sorted(name for jobs in made.values() for name in jobs.values())
    for release in VERSIONS:
        # SDK 0.2.0 cannot read events, and the others skip those without firstTimestamp, as JobSet 0.12 writes them.
        event = "AllJobsCompleted" if release != "0.2.0" and JOBSET != "0.12" else ""
        seen = await run(release, LOOK, made[release]["placed"], late, event)
        assert seen["listed"] == names
        assert seen["status"] == {name: "Failed" if name == late else "Complete" for name in names}
        if event:
            assert all(event in seen["events"][name] for name in names if name != late)

    pods = await cluster_client.list(Pod, namespace=cluster_namespace)
    of_job = {(pod.labels or {})["jobset.sigs.k8s.io/jobset-name"]: pod for pod in pods}
    for release, jobs in made.items():
        assert of_job[jobs["placed"]].spec.node_name == nodes[release]
    stored = await cluster_client.get(TrainJob, (cluster_namespace, late))
    assert [each.reason for each in stored.status.conditions or () if each.type == "Failed"] == [
        "DeadlineExceeded"
    ]
    for release, jobs in made.items():
        left = await run(release, DELETE, *jobs.values())
        names = [name for name in names if name not in jobs.values()]
        assert sorted(left) == names
