# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager with ``compatibilityVersion: "2.3"`` against a real API server."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Event
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


def runtime(namespace: str, pod: dict[str, Any], **policy: Any) -> TrainingRuntime:
    return written_runtime(namespace, pod=pod, mlPolicy=policy)


async def test_a_patched_train_job_keeps_its_runtime_and_fails_at_its_deadline(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    pod = {"containers": [{"name": "node", "image": "busybox"}]}
    await live_client.create(runtime(namespace, pod, numNodes=2, jax={}))
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


@pytest.mark.parametrize(
    ("secrets", "events"),
    [
        pytest.param(
            [{"name": "registry"}],
            [
                "TrainJob resources reconciliation failed: runtimePatches: patch of kueue.x-k8s.io/manager for job node: spec.template.spec.imagePullSecrets: map: map[] does not contain declared merge key: name"
            ],
            id="beside the runtime's secrets",
        ),
        pytest.param([], [], id="alone"),
    ],
)
async def test_a_stored_patch_with_a_nameless_pull_secret_is_one_event_or_has_no_effect(
    run_manager: Any,
    live_client: LiveClient,
    namespace: str,
    secrets: list[dict[str, str]],
    events: list[str],
) -> None:
    pod = {"containers": [{"name": "node", "image": "busybox"}], "imagePullSecrets": secrets}
    await live_client.create(runtime(namespace, pod, numNodes=1, torch={}))
    patch = runtime_patch(PATCH["manager"], {"imagePullSecrets": [{}]})
    for name, patches in (("nameless", [patch]), ("plain", None)):
        await live_client.create(written_train_job(namespace, "runtime", name=name, runtimePatches=patches))
    async with run_manager(version="2.3"):

        async def seen() -> list[str]:
            found = await live_client.list(Event, namespace=namespace)
            return [each.message or "" for each in found]

        async def settled() -> bool:
            made = {each.name for each in await live_client.list(JobSet, namespace=namespace)}
            expected = {"plain"} if events else {"plain", "nameless"}
            assert (made, await seen()) == (expected, events)
            return True

        await eventually(settled, timeout=10, reason="the TrainJobs are settled")
    if not events:
        job_set = await live_client.get(JobSet, (namespace, "nameless"))
        (job,) = job_set.spec.replicated_jobs or []
        assert job.template.spec.template.spec.to_dict()["imagePullSecrets"] == [{"name": ""}]
