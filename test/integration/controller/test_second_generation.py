# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager with ``compatibilityVersion: "2.3"`` against a real API server."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import conditions
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.builders import runtime_patch, written_runtime, written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

PATCH = runtime_patch(
    "kueue.x-k8s.io/manager", {"nodeSelector": {"zone": "a"}}, metadata={"labels": {"queue": "a"}}
)


async def test_a_patched_train_job_keeps_its_runtime_and_fails_at_its_deadline(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    pod = {"containers": [{"name": "node", "image": "busybox"}]}
    await live_client.create(written_runtime(namespace, pod=pod, mlPolicy={"numNodes": 2, "jax": {}}))
    sent: list[Request] = []
    async with run_manager(sent=sent, version="2.3"):
        job = written_train_job(namespace, "runtime", runtimePatches=[PATCH], activeDeadlineSeconds=10)
        await live_client.create(job)

        async def built() -> JobSet:
            return await live_client.get(JobSet, (namespace, "job"))

        job_set = await eventually(built, reason="the JobSet is built")
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

        await eventually(failed, reason="the TrainJob fails at its deadline", timeout=60)
        assert not (await live_client.get(TrainingRuntime, (namespace, "runtime"))).metadata.finalizers
    about_snapshots = [each.method for each in sent if "configmaps" in each.path and namespace in each.path]
    assert about_snapshots == ["POST"]
