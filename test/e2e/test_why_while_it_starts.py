# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl why``, run without a pause during a healthy TrainJob's life, never reports that something is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import pytest
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError

from pkg import why
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from pkg.why import State, Verdict, reading
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@asynccontextmanager
async def asked(client: LiveClient, key: NamespacedName) -> AsyncIterator[list[Verdict]]:
    """Diagnose the TrainJob again and again during the block; yield the list that gets every verdict."""
    answers: list[Verdict] = []

    async def ask() -> None:
        while True:
            try:
                answers.append(why.diagnose(await reading.take(client, *key, datetime.now(UTC))))
            except NotFoundError:
                await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        yield answers
        tasks.cancel_scope.cancel()


def runtime(namespace: str, *, run_for: str, restarts: int = 0, exit_code: str = "") -> TrainingRuntime:
    """Return a runtime of one step whose annotations determine how its simulated pods end."""
    annotations = {"sim.local/run-for": run_for} | ({"sim.local/exit-code": exit_code} if exit_code else {})
    job_set = {"failurePolicy": {"maxRestarts": restarts}} if restarts else {}
    metadata, policy = {"annotations": annotations}, {"numNodes": 2}
    job = {"backoffLimit": 0}
    return written_runtime(
        namespace, "short", pod_metadata=metadata, job=job, job_set=job_set, mlPolicy=policy
    )


def wrong(answers: list[Verdict]) -> list[str]:
    return sorted(
        {f"{each.sentence} {[one.cause for one in each.findings]}" for each in answers if each.exit_code}
    )


async def test_a_life_from_creation_to_completion(cluster_client: LiveClient, cluster_namespace: str) -> None:
    await cluster_client.create(runtime(cluster_namespace, run_for="8s"))
    job = written_train_job(cluster_namespace, "short")
    async with asked(cluster_client, job.key) as answers:
        await cluster_client.create(job)
        await until(cluster_client, job, "Complete")
        await eventually(lambda: _last(answers, State.COMPLETE), timeout=60, reason="the answer is complete")
    assert wrong(answers) == []
    assert {State.STARTING, State.RUNNING, State.COMPLETE} <= {each.state for each in answers}


async def test_a_job_set_that_is_built_again_after_an_edit(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    await cluster_client.create(runtime(cluster_namespace, run_for="1h"))
    job = written_train_job(cluster_namespace, "short")
    job.spec.suspend = True
    await cluster_client.create(job)
    await until(cluster_client, job, "Suspended")
    before = await job_set_at(cluster_client, job.key)
    async with asked(cluster_client, job.key) as answers:
        edit = b'{"spec": {"suspend": false, "trainer": {"numNodes": 3}}}'
        await cluster_client.patch(job, raw_patch(MERGE, edit))
        await eventually(lambda: _last(answers, State.RUNNING), timeout=120, reason="the answer is running")
    after = await cluster_client.get(JobSet, job.key)
    assert before.metadata.uid
    assert (after.spec.replicated_jobs or [])[0].template.spec.parallelism == 3
    # A verdict that was read while the edit was written shows the suspended TrainJob. The garbage collector of a new
    # cluster discovers the kind JobSet within 30 s; until then, a foreground deletion really is blocked.
    excused = (["suspended"], ["deletion-blocked"])
    resumed = [each for each in answers if [one.cause for one in each.findings] not in excused]
    assert wrong(resumed) == []


async def test_a_job_set_that_restarts(cluster_client: LiveClient, cluster_namespace: str) -> None:
    """While the failed pods exist, the verdict names them; after their deletion, the TrainJob is starting."""
    await cluster_client.create(runtime(cluster_namespace, run_for="2s", restarts=2, exit_code="1"))
    job = written_train_job(cluster_namespace, "short")
    async with asked(cluster_client, job.key) as answers:
        await cluster_client.create(job)
        await until(cluster_client, job, "Failed")
    allowed = {"container-failed", "retries-exhausted", "pods-failing", "failed"}
    others = {one.cause for each in answers if each.exit_code for one in each.findings} - allowed
    assert others == set(), wrong(answers)
    assert State.STARTING in {each.state for each in answers}


async def _last(answers: list[Verdict], state: State) -> bool:
    return bool(answers) and answers[-1].state is state
