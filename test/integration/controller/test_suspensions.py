# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobs that are suspended, moved and resumed in a moment, so that a manager may see their last state alone."""

import json
from typing import Any

import anyio
import pytest
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]

NAMES = [f"job-{number}" for number in range(20)]
RUNTIME: dict[str, Any] = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}},
    },
}


async def test_the_pods_follow_the_last_placement(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    async def change(name: str, **spec: Any) -> None:
        target = TrainJob.from_dict({"metadata": {"name": name, "namespace": namespace}})
        await live_client.patch(target, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))

    async def move(name: str) -> None:
        override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"flavor": "spot"}}}
        await change(name, suspend=True, podTemplateOverrides=[override])
        await change(name, suspend=False)

    async def selectors(*, suspended: bool) -> list[Any]:
        found = {each.name: each for each in await live_client.list(JobSet, namespace=namespace)}
        assert all(bool(each.spec.suspend) is suspended for each in found.values())
        assert found.keys() == {*NAMES}
        jobs = [(found[name].spec.replicated_jobs or [])[0] for name in NAMES]
        return [job.template.spec.template.spec.node_selector for job in jobs]

    async def run_anywhere() -> bool:
        return await selectors(suspended=False) == [None] * len(NAMES)

    async def run_there() -> bool:
        return await selectors(suspended=False) == [{"flavor": "spot"}] * len(NAMES)

    metadata = {"name": "runtime", "namespace": namespace}
    template = {"spec": {"replicatedJobs": [RUNTIME]}}
    runtime = {"metadata": metadata, "spec": {"mlPolicy": {"torch": {}}, "template": template}}
    await live_client.create(TrainingRuntime.from_dict(runtime))
    async with run_manager():
        for name in NAMES:
            reference = {"name": "runtime", "kind": "TrainingRuntime"}
            made = {"metadata": {"name": name, "namespace": namespace}, "spec": {"runtimeRef": reference}}
            await live_client.create(TrainJob.from_dict(made))
        await eventually(run_anywhere, timeout=30, interval=1, reason="the JobSets run")
        async with anyio.create_task_group() as tasks:
            for name in NAMES:
                tasks.start_soon(move, name)
        await eventually(run_there, timeout=30, interval=1, reason="the JobSets run where they were moved")
