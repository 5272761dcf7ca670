# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PodGroups on a real API server: before and after their CRD is installed, and what changes them later."""

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from controller_runtime import cache, metrics
from controller_runtime.apis.core.v1 import Event, LimitRange
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery import Object
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup as CoschedulingPodGroup
from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoPodGroup
from testkit.builders import written_train_job

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]
POLICIES: dict[str, type[Object]] = {"coscheduling": CoschedulingPodGroup, "volcano": VolcanoPodGroup}


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def runtime(namespace: str, policy: str | None, **pod: Any) -> TrainingRuntime:
    container = {"name": "node", "image": "busybox", "resources": {"requests": {"cpu": "500m"}}}
    template = {"spec": {"containers": [container], **pod}}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": template},
        },
    }
    spec: dict[str, Any] = {
        "mlPolicy": {"numNodes": 2},
        "template": {"spec": {"replicatedJobs": [job]}},
    }
    if policy is not None:
        spec["podGroupPolicy"] = {policy: {}}
    return TrainingRuntime.from_dict(
        {"metadata": {"name": policy or "plain", "namespace": namespace}, "spec": spec}
    )


async def test_without_pod_groups_only_gang_scheduled_jobs_wait_and_go_on_once_they_are_there(
    run_manager: RunManager, live_client: LiveClient, namespace: str, policy: str, serve_pod_groups: Any
) -> None:
    kind = POLICIES[policy]
    for made in (None, policy):
        await live_client.create(runtime(namespace, made))
    async with run_manager() as mgr:
        await live_client.create(written_train_job(namespace, "plain", name="plain"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "plain")), reason="a plain job runs")
        assert kind.gvk not in mgr.cache.degraded()

        await live_client.create(written_train_job(namespace, policy, name=policy))

        async def reported() -> Event | None:
            events = await live_client.list(Event, namespace=namespace)
            return next(
                (each for each in events if each.involved_object and each.involved_object.name == policy),
                None,
            )

        event = await eventually(reported, reason="the failure is reported")
        assert str(kind.gvk.group_kind) in (event.message or "")
        assert kind.gvk in mgr.cache.degraded()
        await live_client.create(
            written_train_job(namespace, "plain", name="plain").model_copy(
                update={"metadata": ObjectMeta(name="plain-2", namespace=namespace)}
            )
        )
        await eventually(
            lambda: live_client.get(JobSet, (namespace, "plain-2")), reason="another TrainJob gets its JobSet"
        )

        await serve_pod_groups(POLICIES[policy])
        group = await eventually(
            lambda: live_client.get(kind, (namespace, policy)), timeout=60, reason="the PodGroup is made"
        )
        spec = group.to_dict()["spec"]
        assert (spec["minMember"], spec["minResources"]) == (2, {"cpu": "1"})
        await eventually(
            lambda: live_client.get(JobSet, (namespace, policy)), reason="the gang has its JobSet"
        )

        # The PodGroup is created again after a user deletes it.
        await live_client.delete(group)

        async def another() -> bool:
            return (await live_client.get(kind, (namespace, policy))).metadata.uid != group.metadata.uid

        await eventually(another, reason="the PodGroup is made again")


async def test_a_suspended_jobs_pod_group_follows_its_runtime_when_limits_or_runtime_classes_change(
    run_manager: RunManager, live_client: LiveClient, namespace: str, policy: str, serve_pod_groups: Any
) -> None:
    await serve_pod_groups(POLICIES[policy])
    kind = POLICIES[policy]
    handler = f"class-{namespace}"[:63].rstrip("-")
    await live_client.create(runtime(namespace, policy, runtimeClassName=handler))
    async with run_manager() as mgr:
        await live_client.create(written_train_job(namespace, policy, name=policy, suspend=True))
        await eventually(lambda: live_client.get(kind, (namespace, policy)), reason="the PodGroup is made")

        async def resize(nodes: int) -> None:
            found = await live_client.get(TrainingRuntime, (namespace, policy))
            assert found.spec.ml_policy is not None
            found.spec.ml_policy.num_nodes = nodes
            await live_client.update(found)

            # The events that enqueue the TrainJob come from other watches, which may be faster than the runtime's.
            async def known() -> bool:
                policy_known = (await mgr.client.get(TrainingRuntime, (namespace, policy))).spec.ml_policy
                return policy_known is not None and policy_known.num_nodes == nodes

            await eventually(known, reason="the manager knows the runtime's new size")

        async def sized(nodes: int) -> bool:
            group = await live_client.get(kind, (namespace, policy))
            return bool(group.to_dict()["spec"]["minMember"] == nodes)

        await resize(3)
        await live_client.create(
            LimitRange.from_dict(
                {
                    "metadata": {"name": "limits", "namespace": namespace},
                    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
                }
            )
        )
        await eventually(lambda: sized(3), reason="a new LimitRange wakes the suspended job")
        await resize(4)
        runtime_class = RuntimeClass(metadata=ObjectMeta(name=handler), handler="runc")
        await live_client.create(runtime_class)
        await eventually(lambda: sized(4), reason="a new RuntimeClass wakes the suspended job")
        await live_client.delete(runtime_class)


@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_a_pod_group_is_back_at_once_when_it_was_deleted_or_edited_while_its_job_is_suspended(
    run_manager: RunManager,
    live_client: LiveClient,
    namespace: str,
    policy: str,
    serve_pod_groups: Any,
    suspend: bool,
    figure: Any,
) -> None:
    await serve_pod_groups(POLICIES[policy])
    kind = POLICIES[policy]
    await live_client.create(runtime(namespace, policy))

    async def members() -> Any:
        return (await live_client.get(kind, (namespace, policy))).to_dict()["spec"].get("minMember")

    async with run_manager():
        await live_client.create(written_train_job(namespace, policy, name=policy, suspend=suspend))
        await eventually(lambda: live_client.get(JobSet, (namespace, policy)), reason="the JobSet is made")
        group = await eventually(
            lambda: live_client.get(kind, (namespace, policy)), reason="the PodGroup is made"
        )
        for edit in (b'{"spec":{"minMember":1}}', b'{"spec":{"minMember":null}}') if suspend else ():
            await live_client.patch(group, raw_patch(MERGE, edit))
            began = anyio.current_time()

            async def healed() -> bool:
                return bool(await members() == 2)

            await eventually(healed, interval=0.01, reason="the PodGroup is as it was")
            figure(f"{policy} PodGroup as it was after an edit", anyio.current_time() - began, at_most=5)
        await live_client.delete(group)
        began = anyio.current_time()

        async def another() -> bool:
            return (await live_client.get(kind, (namespace, policy))).metadata.uid != group.metadata.uid

        await eventually(another, interval=0.01, reason="the PodGroup is made again")
        figure(f"{policy} PodGroup back after its deletion", anyio.current_time() - began, at_most=5)


async def test_a_running_jobs_pod_group_stays_as_it_is_before_and_after_a_restart(
    run_manager: RunManager, live_client: LiveClient, namespace: str, policy: str, serve_pod_groups: Any
) -> None:
    await serve_pod_groups(POLICIES[policy])
    kind = POLICIES[policy]
    await live_client.create(runtime(namespace, policy))

    async def edited() -> bool:
        group = await live_client.get(kind, (namespace, policy))
        return bool(group.to_dict()["spec"]["minMember"] == 1)

    async with run_manager():
        await live_client.create(written_train_job(namespace, policy, name=policy))
        await eventually(lambda: live_client.get(JobSet, (namespace, policy)), reason="the JobSet is made")
        group = await live_client.get(kind, (namespace, policy))
        await live_client.patch(group, raw_patch(MERGE, b'{"spec":{"minMember":1}}'))
        found = await live_client.get(TrainingRuntime, (namespace, policy))
        await live_client.patch(found, raw_patch(MERGE, b'{"spec":{"mlPolicy":{"numNodes":3}}}'))
        await consistently(edited, reason="the PodGroup of a running gang is left alone")
    async with run_manager():
        await consistently(edited, reason="the PodGroup is left alone after a restart")


async def test_gangs_at_rest_cost_nothing_however_often_they_are_looked_at(
    run_manager: RunManager, live_client: LiveClient, namespace: str, policy: str, serve_pod_groups: Any
) -> None:
    await serve_pod_groups(POLICIES[policy])
    await live_client.create(runtime(namespace, policy))
    jobs = [written_train_job(namespace, policy, name=policy, suspend=suspend) for suspend in (False, True)]
    jobs[1].metadata.name = "suspended"
    sent: list[Request] = []

    def looked_at() -> float:
        labels = {"controller": "trainjob_controller", "result": "success"}
        return metrics.REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0

    async with run_manager(sent=sent, cache=cache.Options(resync_period=0.3)):
        for job in jobs:
            await live_client.create(job)
            await eventually(partial(live_client.get, JobSet, job.key), reason="the JobSet is made")
        await anyio.sleep(0.5)
        sent.clear()
        before = looked_at()
        await eventually(lambda: looked_at() - before >= 10, timeout=30, reason="ten resyncs were reconciled")
    here = [f"{each.method} {each.path}" for each in sent if f"/{namespace}/" in each.path]
    assert [each for each in here if not each.startswith("GET ")] == []
