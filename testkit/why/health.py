# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States of a real control plane in which nothing is wrong; some of them look like causes."""

from __future__ import annotations

from typing import Any, Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, unstructured

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.why.live import ENV, NAME, LiveTrainJob, State, condition, container
from testkit.why.scheduling import claim

TRUE: Final = ["true"]
LATER: Final = ["sh", "-c", "sleep 3"]


def runs(*containers: Any, **parts: Any) -> State:
    """Return the state of a TrainJob whose pod runs."""

    async def build(live: LiveTrainJob) -> None:
        await live.start(*containers, **parts)
        await live.runs(parts.get("nodes", 1))

    return build


def after(*states: State) -> State:
    async def build(live: LiveTrainJob) -> None:
        for each in states:
            await each(live)

    return build


async def just_created(live: LiveTrainJob) -> None:
    await live.start()


async def complete(live: LiveTrainJob) -> None:
    await live.start(container(command=TRUE))
    await live.condition("Complete")


async def after_a_retry(live: LiveTrainJob) -> None:
    script = 'test -e "$HOME/$JOB" && exit 0; touch "$HOME/$JOB"; exit 1'
    env = [{"name": "JOB", "value": live.namespace}]
    await live.start(container(command=["sh", "-c", script], env=env), job={"backoffLimit": 3})
    await live.condition("Complete")


async def replaced(live: LiveTrainJob) -> None:
    """Make the first pod fail and the second one run."""
    script = 'test -e "$HOME/$JOB" && exec sleep 1000; touch "$HOME/$JOB"; exit 1'
    env = [{"name": "JOB", "value": live.namespace}]
    await live.start(container(command=["sh", "-c", script], env=env), job={"backoffLimit": 3})
    await live.ended(1)
    await live.runs()


async def restarted(live: LiveTrainJob) -> None:
    """Make a container fail once and run again."""
    script = 'test -e "$HOME/$JOB" && exec sleep 1000; touch "$HOME/$JOB"; exit 1'
    env = [{"name": "JOB", "value": live.namespace}]
    await live.start(container(command=["sh", "-c", script], env=env), pod={"restartPolicy": "OnFailure"})

    def again(snapshot: Any) -> bool:
        statuses = [each for pod in snapshot.running for each in pod.maps("status", "containerStatuses")]
        return any(each.get("restartCount") == 1 and "running" in each["state"] for each in statuses)

    await live.until(again, "the container runs again")


async def suspended_and_resumed(live: LiveTrainJob) -> None:
    await runs()(live)
    await live.change(TrainJob, NAME, spec={"suspend": True})
    await live.condition("Suspended")
    await live.until(lambda snapshot: not snapshot.pods, "the pods are deleted")
    await live.change(TrainJob, NAME, spec={"suspend": False})
    await live.runs()


def two_steps(command: list[str]) -> State:
    """Return a state in which the trainer's Job waits for a first step."""

    async def build(live: LiveTrainJob) -> None:
        first = {"name": "prepare", "template": {"spec": {"template": {"spec": {
            "containers": [container("prepare", command)], "restartPolicy": "Never"}}}}}  # fmt: skip
        depends = {"dependsOn": [{"name": "prepare", "status": "Complete"}]}
        await live.start(steps=[first], step=depends)
        await live.runs()

    return build


async def second_step(live: LiveTrainJob) -> None:
    await two_steps(LATER)(live)
    await live.until(
        lambda snapshot: any("node" in pod.name for pod in snapshot.running), "the second step runs"
    )


async def deleted_secret(live: LiveTrainJob) -> None:
    await live.make("v1", "Secret", "hf-token", stringData={"token": "x"})
    await runs(container(env=[ENV]))(live)
    secret = unstructured(GVK("", "v1", "Secret"))
    await live.client.delete(await live.client.get(secret, (live.namespace, "hf-token")))


async def other_job_failed(live: LiveTrainJob) -> None:
    """Make another TrainJob of the namespace fail."""
    await live.start(container(command=["false"]), name="other", runtime="other")

    async def failed() -> bool:
        found = await live.client.get(TrainJob, (live.namespace, "other"))
        return any(each.type == "Failed" and each.status == "True" for each in found.status.conditions or [])

    await eventually(failed, timeout=120, reason="the other TrainJob failed")


async def failed_before(live: LiveTrainJob) -> None:
    """Make a TrainJob of the same name fail, and delete it with its pods."""
    await live.start(container(command=["false"]), runtime="broken")
    await live.condition("Failed")
    await live.client.delete(await live.client.get(TrainJob, (live.namespace, NAME)))

    async def deleted() -> bool:
        found = await live.client.list(TrainJob, namespace=live.namespace)
        return not found and not await live.client.list(Pod, namespace=live.namespace)

    await eventually(deleted, timeout=120, reason="the first TrainJob and its pods are deleted")


async def refused_before(live: LiveTrainJob) -> None:
    """Make a quota refuse the pods, and then raise the quota."""
    quota = unstructured(GVK("", "v1", "ResourceQuota"))
    await live.make("v1", "ResourceQuota", "compute", spec={"hard": {"pods": "0"}})
    await live.becomes("v1", "ResourceQuota", "compute", "status", "used")
    await live.start()
    await live.event("FailedCreate")
    await live.change(quota, "compute", spec={"hard": {"pods": "9"}})
    await live.runs()


async def quota_with_room(live: LiveTrainJob) -> None:
    await live.make("v1", "ResourceQuota", "compute", spec={"hard": {"pods": "1"}})
    await live.becomes("v1", "ResourceQuota", "compute", "status", "used")


async def limit_range(live: LiveTrainJob) -> None:
    limit = {"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"memory": "1Gi"}}
    await live.make("v1", "LimitRange", "defaults", spec={"limits": [limit]})


async def priority(live: LiveTrainJob) -> None:
    await live.make("scheduling.k8s.io/v1", "PriorityClass", live.namespace, shared=True, value=5)
    await runs(pod={"priorityClassName": live.namespace})(live)


async def with_a_claim(live: LiveTrainJob) -> None:
    await runs(pod=await claim(live))(live)


async def class_of_runtime(live: LiveTrainJob) -> None:
    await live.make("node.k8s.io/v1", "RuntimeClass", live.namespace, shared=True, handler="runc")
    await runs(pod={"runtimeClassName": live.namespace})(live)


async def admitted_and_running(live: LiveTrainJob) -> None:
    await live.workload(condition("QuotaReserved"), condition("Admitted"))
    await live.change(TrainJob, NAME, owner="kueue", spec={"suspend": False})
    await live.runs()


async def manager_restarts(live: LiveTrainJob) -> None:
    await runs()(live)
    await live.cluster.supervisor.stop("trainer-controller-manager")
    live.undo.push_async_callback(live.cluster.restart)


async def job_set_restarts(live: LiveTrainJob) -> None:
    """Make the first Job fail, so that JobSet creates its Jobs again."""
    script = 'test -e "$HOME/$JOB" && exec sleep 1000; touch "$HOME/$JOB"; exit 1'
    env = [{"name": "JOB", "value": live.namespace}]
    await live.start(
        container(command=["sh", "-c", script], env=env), job_set={"failurePolicy": {"maxRestarts": 3}}
    )
    await live.until(
        lambda snapshot: snapshot.job_set is not None and snapshot.job_set.number("status", "restarts"),
        "it restarts",
    )
    await live.runs()


SIDECAR: Final = {"initContainers": [container("sidecar", restartPolicy="Always")]}
READER: Final = ("trainjobs", "jobsets", "jobs", "pods")
