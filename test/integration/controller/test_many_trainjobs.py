# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import metadata_only

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_train_job

pytestmark = pytest.mark.integration

MANY = 500


async def test_500_jobs_at_once_get_their_job_sets_though_the_manager_is_killed_in_the_middle(
    start_manager: Any, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    async def job_sets() -> int:
        return len(await live_client.list(metadata_only(JobSet), namespace=namespace))

    first = start_manager()
    async with anyio.create_task_group() as tasks:
        for number in range(MANY):
            job = written_train_job(namespace, torch_runtime, kind=None, name=f"job-{number}")
            tasks.start_soon(live_client.create, job)
        killed_at = await eventually(
            lambda: _at_least(job_sets, MANY // 10), timeout=120, reason="the first manager has begun"
        )
        first.kill()
    # The manager must be killed in the middle of its work, or this test proves nothing.
    assert killed_at < MANY

    second = start_manager()
    await eventually(
        lambda: _at_least(job_sets, MANY), timeout=180, interval=0.2, reason="all JobSets are there"
    )
    owners = {each.name: each.metadata.uid for each in await live_client.list(TrainJob, namespace=namespace)}
    found = await live_client.list(JobSet, namespace=namespace)
    controlled = {each.name: [owner.uid for owner in each.metadata.owner_references or ()] for each in found}
    assert controlled == {name: [uid] for name, uid in owners.items()}
    # The second manager created only what was missing, and changed nothing.
    assert {each.metadata.generation for each in found} == {1}
    assert second.terminate() == 0


async def _at_least(count: Any, wanted: int) -> int:
    found: int = await count()
    return found if found >= wanted else 0
