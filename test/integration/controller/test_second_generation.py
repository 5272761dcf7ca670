# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager with ``compatibilityVersion: "2.3"`` against a real API server."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.machinery import conditions
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

PATCH = {
    "manager": "kueue.x-k8s.io/manager",
    "trainingRuntimeSpec": {
        "template": {
            "metadata": {"labels": {"queue": "a"}},
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}},
                    }
                ]
            },
        }
    },
}


async def test_a_patched_train_job_keeps_its_runtime_and_fails_at_its_deadline(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    pod = {"containers": [{"name": "node", "image": "busybox"}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    spec = {"mlPolicy": {"numNodes": 2, "jax": {}}, "template": {"spec": {"replicatedJobs": [job]}}}
    runtime = TrainingRuntime.from_dict({"metadata": {"name": "jax", "namespace": namespace}, "spec": spec})
    await live_client.create(runtime)
    sent: list[Request] = []
    async with run_manager(sent=sent, version="2.3"):
        wanted = {
            "runtimeRef": {"name": "jax", "kind": "TrainingRuntime"},
            "runtimePatches": [PATCH],
            "activeDeadlineSeconds": 4,
        }
        metadata = {"name": "job", "namespace": namespace}
        await live_client.create(TrainJob.from_dict({"metadata": metadata, "spec": wanted}))

        async def built() -> JobSet:
            return await live_client.get(JobSet, (namespace, "job"))

        job_set = await eventually(built, reason="no JobSet was built")
        (node,) = job_set.spec.replicated_jobs or []
        template = node.template.spec.template
        assert template.spec.node_selector == {"zone": "a"}
        assert (job_set.labels or {})["queue"] == "a"
        assert node.template.spec.parallelism == 2
        env = {each.name: each.value for each in (template.spec.containers or [])[0].env or ()}
        assert env["JAX_NUM_PROCESSES"] == "2"
        snapshot = await live_client.get(ConfigMap, (namespace, "job-runtime-snapshot"))
        assert "kind: TrainingRuntime" in (snapshot.data or {})["runtime"]

        async def failed() -> bool:
            stored = await live_client.get(TrainJob, (namespace, "job"))
            found = conditions.find(stored.status.conditions, "Failed")
            assert found is not None
            assert found.reason == "DeadlineExceeded"
            return not await live_client.list(JobSet, namespace=namespace)

        await eventually(failed, reason="the deadline had no effect", timeout=30)
        assert not (await live_client.get(TrainingRuntime, (namespace, "jax"))).metadata.finalizers
    about_snapshots = [each.method for each in sent if "configmaps" in each.path and namespace in each.path]
    assert about_snapshots == ["POST"]
