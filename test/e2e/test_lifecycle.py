# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pods of a suspended, edited and resumed TrainJob, on JobSet's controller with and without its webhooks."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Event, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import ServerError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller.children import fixed_fields_match
from pkg.runtime import core
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import edit_spec

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OF_JOB = {"jobset.sigs.k8s.io/jobset-name": "job"}
HOOKS = [
    unstructured(GVK("admissionregistration.k8s.io", "v1", kind))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
]
Edit = Callable[..., Any]


@pytest.fixture(params=["webhook", "no webhook"])
async def jobset_webhook(
    request: pytest.FixtureRequest, cluster_client: LiveClient, cluster_namespace: str
) -> AsyncIterator[str]:
    """Run the test with JobSet's webhooks, or exclude its namespace from them."""
    if request.param == "webhook":
        yield request.param
        return
    selector = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [cluster_namespace]}
        ]
    }
    found = [
        configuration
        for kind in HOOKS
        for configuration in await cluster_client.list(kind)
        if configuration.name.startswith("jobset-")
    ]
    for configuration in found:
        hooks = [hook | {"namespaceSelector": selector} for hook in configuration["webhooks"]]
        await cluster_client.patch(configuration, raw_patch(MERGE, json.dumps({"webhooks": hooks}).encode()))

    probe = {
        "metadata": {"name": "probe", "namespace": cluster_namespace},
        "spec": {"suspend": True, "replicatedJobs": []},
    }

    async def left_alone() -> bool:
        try:
            made = await cluster_client.create(JobSet.from_dict(probe), dry_run=True)
        except ServerError:  # the validator of 0.12 fails on an object that the mutator has not seen
            return False
        return "network" not in made.to_dict()["spec"]

    try:
        await eventually(left_alone, timeout=120, reason="the API server has taken the webhooks away")
        yield request.param
    finally:
        for configuration in found:
            body = json.dumps({"webhooks": configuration["webhooks"]}).encode()
            await cluster_client.patch(configuration, raw_patch(MERGE, body))


@pytest.fixture
async def job(cluster_client: LiveClient, cluster_namespace: str, jobset_webhook: str) -> TrainJob:
    """Return a suspended TrainJob whose Jobs exist; its runtime's JobSets are valid without defaults."""
    parts: dict[str, Any] = {
        "pod": {"restartPolicy": "OnFailure"},
        "job": {"completionMode": "Indexed"},
        "job_set": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
        },
    }
    await cluster_client.create(written_runtime(cluster_namespace, **parts, mlPolicy={"numNodes": 1}))
    overrides = [{"targetJobs": [{"name": "node"}], "metadata": {"annotations": {"sim.local/run-for": "2s"}}}]
    trainer = {"image": "busybox:one", "numNodes": 2}
    made = await cluster_client.create(
        written_train_job(
            cluster_namespace, "runtime", suspend=True, trainer=trainer, podTemplateOverrides=overrides
        )
    )

    async def has_jobs() -> bool:
        job_set = await cluster_client.get(JobSet, made.key)
        counts = job_set.status.replicated_jobs_status or []
        return any(each.suspended for each in counts)

    await eventually(has_jobs, timeout=120, reason="the suspended JobSet has its Job")
    return made


@pytest.fixture
def edit(cluster_client: LiveClient, job: TrainJob) -> Edit:
    """Return a function that changes the spec of the TrainJob."""
    return functools.partial(edit_spec, cluster_client, job)


@pytest.fixture
def completes(cluster_client: LiveClient, job: TrainJob) -> Callable[..., Any]:
    """Return a function that waits until the TrainJob is Complete, and returns the last state of each pod seen."""

    async def wait() -> list[dict[str, Any]]:
        seen: dict[str | None, dict[str, Any]] = {}

        async def done() -> bool:
            found = await cluster_client.get(
                TrainJob, job.key
            )  # read before the pods: if it is Complete, they have ended
            for pod in await cluster_client.list(Pod, namespace=job.namespace, labels=OF_JOB):
                seen[pod.metadata.uid] = pod.to_dict()
            return any(each.type == "Complete" for each in found.status.conditions or ())

        await eventually(done, timeout=120, interval=0.02, reason="the TrainJob is Complete")
        return list(seen.values())

    return wait


def containers(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod["spec"]["containers"][0] for pod in pods]


async def warnings(client: LiveClient, namespace: str) -> list[str]:
    events = await client.list(Event, namespace=namespace)
    return [
        each.message or "" for each in events if each.type == "Warning" and each.reason != "FailedScheduling"
    ]


@pytest.mark.parametrize("at_once", [False, True], ids=["edited, then resumed", "in one update"])
async def test_an_edited_suspended_train_job_runs_what_it_says(
    cluster_client: LiveClient, job: TrainJob, edit: Edit, completes: Callable[..., Any], at_once: bool
) -> None:
    before = await cluster_client.get(JobSet, job.key)
    trainer = {"image": "busybox:two", "args": ["sleep", "1"], "numNodes": 3}
    if at_once:
        await edit(trainer=trainer, suspend=False)
    else:
        await edit(trainer=trainer)

        async def rebuilt() -> bool:
            found = await cluster_client.get(JobSet, job.key)
            counts = found.status.replicated_jobs_status or []
            return found.metadata.uid != before.metadata.uid and any(each.suspended for each in counts)

        await eventually(rebuilt, timeout=120, reason="the JobSet is built again")
        assert not await cluster_client.list(Pod, namespace=job.namespace)
        await edit(suspend=False)
    pods = await completes()
    assert {(each["image"], *each["args"]) for each in containers(pods)} == {("busybox:two", "sleep", "1")}
    assert len(pods) == 3
    assert await warnings(cluster_client, job.namespace) == []


async def test_a_running_train_job_keeps_its_spec_until_it_is_suspended_and_has_the_new_one_then(
    cluster_client: LiveClient, job: TrainJob, edit: Edit, completes: Callable[..., Any]
) -> None:
    async def active(wanted: bool) -> bool:
        found = await cluster_client.list(Job, namespace=job.namespace)
        return bool(found) and all(
            bool(each.to_dict().get("status", {}).get("active")) is wanted for each in found
        )

    assert job.spec.pod_template_overrides
    brief = job.spec.pod_template_overrides[0].to_dict()
    endless = {**brief, "metadata": {"annotations": {"sim.local/run-for": "1h"}}}
    await edit(podTemplateOverrides=[endless])
    await edit(suspend=False)
    await eventually(lambda: active(True), timeout=120, reason="it runs")
    uid = (await cluster_client.get(JobSet, job.key)).metadata.uid
    await edit(trainer={"image": "busybox:two"})
    assert (await cluster_client.get(JobSet, job.key)).metadata.uid == uid
    await edit(suspend=True)

    async def no_old_pods() -> bool:
        pods = await cluster_client.list(Pod, namespace=job.namespace, labels=OF_JOB)
        found = await cluster_client.get(JobSet, job.key)
        return not pods and found.metadata.uid != uid

    await eventually(no_old_pods, timeout=120, reason="it has stopped, and its JobSet is built again")
    await edit(podTemplateOverrides=[brief])
    await edit(suspend=False)
    pods = await completes()
    assert {each["image"] for each in containers(pods)} == {"busybox:two"}


async def test_kueues_way_keeps_the_job_set(
    cluster_client: LiveClient, job: TrainJob, edit: Edit, completes: Callable[..., Any]
) -> None:
    uid = (await cluster_client.get(JobSet, job.key)).metadata.uid
    label = b'{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}}}'
    await cluster_client.patch(await cluster_client.get(JobSet, job.key), raw_patch(MERGE, label))
    assert job.spec.pod_template_overrides
    first = job.spec.pod_template_overrides[0]

    async def flavor(os: str | None) -> None:
        override = first.to_dict()
        if os is not None:
            override["spec"] = {"nodeSelector": {"kubernetes.io/os": os}}
        await edit(podTemplateOverrides=[override])

    async def counted(field: str) -> bool:
        found = await cluster_client.get(JobSet, job.key)
        return any(getattr(each, field) for each in found.status.replicated_jobs_status or ())

    await flavor("plan9")  # no node fits: the TrainJob is admitted, then evicted
    await edit(suspend=False)
    await eventually(lambda: counted("active"), timeout=120, reason="it was admitted")
    await edit(suspend=True)

    async def evicted() -> bool:
        return await counted("suspended") and not await counted("active")

    await eventually(evicted, timeout=120, reason="it was evicted")
    await flavor(None)
    await flavor("linux")
    await edit(suspend=False)
    pods = await completes()
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Succeeded"]
    assert {pod["spec"]["nodeSelector"]["kubernetes.io/os"] for pod in running} == {"linux"}
    found = await cluster_client.get(JobSet, job.key)
    assert (found.metadata.uid, found.labels["kueue.x-k8s.io/queue-name"]) == (uid, "q")


async def test_a_suspended_job_sets_drift_is_undone(
    cluster_client: LiveClient, job: TrainJob, jobset_webhook: str
) -> None:
    live = await cluster_client.get(JobSet, job.key)
    await cluster_client.patch(live, raw_patch(MERGE, b'{"spec":{"suspend":false}}'))
    if jobset_webhook == "no webhook":
        (replicated,) = live.to_dict()["spec"]["replicatedJobs"]
        replicated["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:evil"
        body = json.dumps({"spec": {"replicatedJobs": [replicated]}}).encode()
        await cluster_client.patch(live, raw_patch(MERGE, body))

    async def undone() -> bool:
        found = await cluster_client.get(JobSet, job.key)
        return bool(found.spec.suspend) and "evil" not in str(found.to_dict())

    await eventually(undone, timeout=120, reason="the JobSet is as the TrainJob says")
    await consistently(undone, reason="the JobSet stays as it is")


async def test_what_jobset_defaults_is_no_difference_for_any_shipped_runtime(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    runtimes = await core.new(cluster_client, FakeClient())
    different = []
    for shipped in await cluster_client.list(ClusterTrainingRuntime):
        name = shipped.name.replace(".", "-")[:40].rstrip("-")
        made = await cluster_client.create(
            written_train_job(cluster_namespace, shipped.name, name=name, kind=None, suspend=True)
        )
        live = await eventually(
            functools.partial(cluster_client.get, JobSet, made.key), timeout=120, reason="the JobSet is made"
        )
        (runtime,) = [each for name, each in runtimes.items() if name.startswith("ClusterTrainingRuntime.")]
        (desired,) = [each for each in await runtime.new_objects(made) if isinstance(each, JobSet)]
        if not fixed_fields_match(live, desired):
            different.append(shipped.name)
    assert different == []
