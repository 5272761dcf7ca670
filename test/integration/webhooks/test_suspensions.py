# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that are suspended, moved and resumed in a moment, or while no manager runs: the last spec runs."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.util import trainjob

pytestmark = pytest.mark.integration

AdmittingManager = Callable[..., AbstractAsyncContextManager[None]]
NAMES = [f"job-{number}" for number in range(20)]
RUNTIME: dict[str, Any] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}},
    },
}


class Jobs:
    """The TrainJobs of a namespace, and a runtime of theirs."""

    def __init__(self, client: LiveClient, namespace: str, *names: str) -> None:
        self._client = client
        self._namespace = namespace
        self._names = names

    async def create(self) -> None:
        spec = {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [RUNTIME]}}}
        metadata = {"name": "runtime", "namespace": self._namespace}
        await self._client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))
        for name in self._names:
            made = {"runtimeRef": {"name": "runtime", "kind": "TrainingRuntime"}, "trainer": {"image": "one"}}
            await self._client.create(
                TrainJob.from_dict({"metadata": {**metadata, "name": name}, "spec": made})
            )

    async def change(self, name: str, **spec: Any) -> None:
        target = TrainJob.from_dict({"metadata": {"name": name, "namespace": self._namespace}})
        await self._client.patch(target, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))

    async def move(self, name: str) -> None:
        override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"flavor": "spot"}}}
        await self.change(name, suspend=True, podTemplateOverrides=[override])
        await self.change(name, trainer={"image": "two"})
        await self.change(name, suspend=False)

    async def run(self, image: str, selector: dict[str, str] | None) -> bool:
        """Return True if every JobSet runs with this spec, and no note of a suspension is left."""
        noted = [trainjob.note(each) for each in await self._client.list(TrainJob, namespace=self._namespace)]
        found = {each.name: each for each in await self._client.list(JobSet, namespace=self._namespace)}
        assert found.keys() == {*self._names}
        jobs = [(each.spec.replicated_jobs or [])[0] for each in found.values() if not each.spec.suspend]
        pods = [job.template.spec.template.spec for job in jobs]
        states = [((pod.containers or [])[0].image, pod.node_selector) for pod in pods]
        return states == [(image, selector)] * len(self._names) and not any(noted)


async def test_the_pods_follow_the_last_placement(
    admitting_manager: AdmittingManager, live_client: LiveClient, namespace: str
) -> None:
    jobs = Jobs(live_client, namespace, *NAMES)
    async with admitting_manager():
        await jobs.create()
        await eventually(lambda: jobs.run("one", None), timeout=30, interval=1, reason="the JobSets run")
        async with anyio.create_task_group() as tasks:
            for name in NAMES:
                tasks.start_soon(jobs.move, name)
        spot = {"flavor": "spot"}
        await eventually(
            lambda: jobs.run("two", spot), timeout=30, interval=1, reason="they run where they were moved"
        )


@pytest.mark.parametrize("mutating", [True, False], ids=["noted", "not noted"])
async def test_a_job_that_was_moved_while_no_manager_led(
    mutating: bool,
    admitting_manager: AdmittingManager,
    start_manager: Callable[[], Any],
    live_client: LiveClient,
    namespace: str,
) -> None:
    """A replica that serves webhooks notes it. Without the mutating webhook no one does: its pods run on, and an event tells."""
    jobs = Jobs(live_client, namespace, "job")
    async with AsyncExitStack() as replica:
        if mutating:
            await replica.enter_async_context(admitting_manager("--controllers="))
        leader = start_manager()
        await jobs.create()
        await eventually(lambda: jobs.run("one", None), timeout=30, interval=1, reason="the JobSet runs")
        leader.kill()
        await jobs.move("job")
        start_manager()

        async def reported() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return [(each.type, each.reason) for each in events] == [("Warning", "JobSetNotFollowing")]

        if mutating:
            spot = {"flavor": "spot"}
            await eventually(
                lambda: jobs.run("two", spot), timeout=30, interval=1, reason="the JobSet follows"
            )
        else:
            await eventually(reported, timeout=30, reason="an event reports it")
            await consistently(lambda: jobs.run("one", None), reason="its pods run on")
