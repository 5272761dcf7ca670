# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager with ``compatibilityVersion: "2.3"`` against a real API server."""

from typing import Any

import anyio
import pytest
from controller_runtime import log
from controller_runtime.apis.core.v1 import ConfigMap, Event
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import conditions
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.util.trainjob import controller_reference

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


def runtime(namespace: str, pod: dict[str, Any], **policy: Any) -> TrainingRuntime:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [job]}}}
    metadata = {"name": "runtime", "namespace": namespace}
    return TrainingRuntime.from_dict({"metadata": metadata, "spec": spec})


async def test_a_patched_train_job_keeps_its_runtime_and_fails_at_its_deadline(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    pod = {"containers": [{"name": "node", "image": "busybox"}]}
    await live_client.create(runtime(namespace, pod, numNodes=2, jax={}))
    sent: list[Request] = []
    async with run_manager(sent=sent, version="2.3"):
        wanted = {
            "runtimeRef": {"name": "runtime", "kind": "TrainingRuntime"},
            "runtimePatches": [PATCH],
            "activeDeadlineSeconds": 10,
        }
        metadata = {"name": "job", "namespace": namespace}
        await live_client.create(TrainJob.from_dict({"metadata": metadata, "spec": wanted}))

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
    ("text", "problem"),
    [
        pytest.param("[" * 40_000, "nested more than 200 levels deep", id="brackets"),
        pytest.param(
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30)),
            "document contains excessive aliasing",
            id="merges",
        ),
        pytest.param(f"a: {'1:' * 200_000}1", "the snapshot refers to the wrong runtime", id="base 60"),
    ],
)
async def test_a_tenant_s_snapshot_is_one_failed_train_job(
    text: str,
    problem: str,
    run_manager: Any,
    live_client: LiveClient,
    namespace: str,
) -> None:
    await live_client.create(
        runtime(namespace, {"containers": [{"name": "node", "image": "busybox"}]}, numNodes=1)
    )

    async def create(name: str) -> TrainJob:
        spec = {"runtimeRef": {"name": "runtime", "kind": "TrainingRuntime"}}
        return await live_client.create(
            TrainJob.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
        )

    owner = controller_reference(await create("attacker"))
    snapshot = ConfigMap(
        metadata=ObjectMeta(name="attacker-runtime-snapshot", namespace=namespace, owner_references=[owner]),
        data={"runtime": text},
    )
    await live_client.create(snapshot)
    with log.captured() as logged:
        async with run_manager(version="2.3"):
            await create("job")

            async def built() -> JobSet:
                return await live_client.get(JobSet, (namespace, "job"))

            await eventually(built, reason="the other TrainJob has its JobSet")

            async def reported() -> bool:
                return any(problem in str(line.get("error")) for line in logged)

            await eventually(reported, reason="the log names the snapshot")
            with pytest.raises(NotFoundError):
                await live_client.get(JobSet, (namespace, "attacker"))


def labelled(namespace: str, version: str) -> TrainingRuntime:
    """Return the runtime; its JobSets have the label ``version``."""
    made = runtime(namespace, {"containers": [{"name": "node", "image": "busybox"}]}, numNodes=1)
    made.spec.template.metadata = ObjectMeta(labels={"version": version})
    return made


async def test_a_train_job_keeps_its_runtime_when_its_snapshot_is_deleted_and_follows_an_edit(
    run_manager: Any, live_client: LiveClient, namespace: str, figure: Any
) -> None:
    """If the snapshot is deleted and the manager restarts, the live runtime is used, as by Trainer v2.3."""
    await live_client.create(labelled(namespace, "1"))
    spec = {"runtimeRef": {"name": "runtime", "kind": "TrainingRuntime"}, "suspend": True}
    await live_client.create(
        TrainJob.from_dict({"metadata": {"name": "job", "namespace": namespace}, "spec": spec})
    )
    key = (namespace, "job-runtime-snapshot")

    def built(version: str) -> Any:
        async def look() -> bool:
            return ((await live_client.get(JobSet, (namespace, "job"))).labels or {}).get(
                "version"
            ) == version

        return look

    async def delete() -> ConfigMap:
        found = await live_client.get(ConfigMap, key)
        await live_client.delete(found)
        return found

    sent: list[Request] = []
    async with run_manager(version="2.3", sent=sent):
        await eventually(built("1"), reason="the JobSet is built")
        stored = await live_client.get(TrainingRuntime, (namespace, "runtime"))
        await live_client.update(stored.model_copy(update={"spec": labelled(namespace, "2").spec}))

        gone, began = await delete(), anyio.current_time()

        async def back() -> ConfigMap:
            return await live_client.get(ConfigMap, key)

        found = await eventually(back, interval=0.01, reason="the snapshot is written again")
        figure("snapshot back after its deletion", anyio.current_time() - began, at_most=5)
        assert found.data == gone.data
        assert await built("1")()

        found.data = {"runtime": (found.data or {})["runtime"].replace('version: "1"', 'version: "3"')}
        await live_client.update(found)
        await eventually(built("3"), reason="the JobSet follows the snapshot")
    read = [each.path for each in sent if each.method == "GET" and each.path.endswith(key[1])]
    assert len(read) == 1  # only the read after the edit

    await delete()
    async with run_manager(version="2.3"):
        await eventually(built("2"), reason="the live runtime is used")
        assert 'version: "2"' in ((await live_client.get(ConfigMap, key)).data or {})["runtime"]


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
    nameless: dict[str, Any] = {"template": {"spec": {"template": {"spec": {"imagePullSecrets": [{}]}}}}}
    template = {"spec": {"replicatedJobs": [{"name": "node", **nameless}]}}
    patch = {"manager": PATCH["manager"], "trainingRuntimeSpec": {"template": template}}
    ref = {"name": "runtime", "kind": "TrainingRuntime"}
    for name, spec in (("nameless", {"runtimePatches": [patch]}), ("plain", {})):
        metadata = {"name": name, "namespace": namespace}
        await live_client.create(
            TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": ref, **spec}})
        )
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
