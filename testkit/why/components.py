# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Causes in components that do not run or answer, each brought about on a real control plane."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, Unstructured, unstructured

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.why import Snapshot
from testkit.why.live import NAME, LiveTrainJob, container


async def stop_component(live: LiveTrainJob, component: str) -> None:
    """Stop a component until the end of the test."""
    await live.cluster.supervisor.stop(component)
    live.undo.push_async_callback(live.cluster.restart)


async def job_set_controller(live: LiveTrainJob) -> None:
    await stop_component(live, "jobset-controller")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        await unhooked(live, kind, "jobset")
    await live.start()
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.spec_is_settled(snapshot.job_set),
        "time has passed",
    )


async def unhooked(live: LiveTrainJob, kind: str, words: str) -> None:
    """Delete webhook configurations until the end of the test."""
    found = await live.client.list(unstructured(GVK("admissionregistration.k8s.io", "v1", kind)))
    for each in found:
        if words in each.name:
            data = each.to_dict()
            data["metadata"] = {"name": each.name}
            await live.client.delete(each)
            live.undo.push_async_callback(live.client.create, Unstructured.wrap(data))


async def manager(live: LiveTrainJob) -> None:
    await stop_component(live, "trainer-controller-manager")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        await unhooked(live, kind, "trainer")
    await live.start()
    await live.until(lambda snapshot: snapshot.spec_is_settled(snapshot.train_job), "time has passed")


async def manager_scaled_down(live: LiveTrainJob) -> None:
    await manager(live)
    labels = {"app": "trainer"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container("manager")]}}
    await live.make("apps/v1", "Deployment", "kubeflow-trainer-controller-manager",
                    spec={"replicas": 0, "selector": {"matchLabels": labels}, "template": template})  # fmt: skip


async def job_controller(live: LiveTrainJob) -> None:
    await stop_component(live, "kube-controller-manager")
    await live.start()
    await live.until(
        lambda snapshot: bool(snapshot.jobs) and snapshot.spec_is_settled(snapshot.jobs[0]), "time has passed"
    )


async def scheduler(live: LiveTrainJob) -> None:
    await live.start(pod={"schedulerName": "nope"})
    await live.until(
        lambda snapshot: bool(snapshot.pods) and snapshot.spec_is_settled(snapshot.pods[0]), "time has passed"
    )


async def between_retries(live: LiveTrainJob) -> None:
    await live.start(container(command=["sh", "-c", "exit 4"]), job={"backoffLimit": 3})
    await live.ended(4)
    for pod in await live.client.list(Pod, namespace=live.namespace):
        await live.client.delete(pod, grace_period_seconds=0)

    def waits(snapshot: Snapshot) -> bool:
        return any(job.number("status", "failed") and snapshot.missing_pods(job) for job in snapshot.jobs)

    await live.until(waits, "the Job waits")


async def service_removed(live: LiveTrainJob) -> None:
    await live.start()
    await live.runs()
    await stop_component(live, "jobset-controller")
    service = unstructured(GVK("", "v1", "Service"))
    await live.client.delete(await live.client.get(service, (live.namespace, NAME)))
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.spec_is_settled(snapshot.job_set),
        "time has passed",
    )


async def unsupported(live: LiveTrainJob) -> None:
    await unhooked(live, "ValidatingWebhookConfiguration", "trainer")
    await live.runtime()
    spec = {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "Nothing", "name": "plain"}}
    await live.client.create(
        TrainJob.from_dict({"metadata": {"name": NAME, "namespace": live.namespace}, "spec": spec})
    )
    await live.condition("Failed")
