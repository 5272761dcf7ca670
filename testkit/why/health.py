# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""States of a real control plane in which nothing is wrong; some of them look like causes."""

from __future__ import annotations

from typing import Any, Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, unstructured

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.why.live import NAME, LiveTrainJob, State, container


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


async def second_step(live: LiveTrainJob) -> None:
    first = {"name": "prepare", "template": {"spec": {"template": {"spec": {
        "containers": [container("prepare", ["sh", "-c", "sleep 3"])], "restartPolicy": "Never"}}}}}  # fmt: skip
    depends = {"dependsOn": [{"name": "prepare", "status": "Complete"}]}
    await live.start(steps=[first], step=depends)
    await live.runs()
    await live.until(
        lambda snapshot: any("node" in pod.name for pod in snapshot.running), "the second step runs"
    )


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


READER: Final = ("trainjobs", "jobsets", "jobs", "pods")
