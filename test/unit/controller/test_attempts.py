# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The gate ExecutionAttempts: each start is counted once, and the containers know the number."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ConflictError

from pkg import features
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.children import UnstoredError
from testkit.trainjobs import GANG, KEY, PLAIN, ReconcilerWorld, suspended_world, world

STARTS = "trainer.kubeflow.org/starts"
RESUMES = "trainer.kubeflow.org/resumes"


async def enable(w: ReconcilerWorld, enabled: bool = True) -> ReconcilerWorld:
    w.cfg.feature_gates = {features.EXECUTION_ATTEMPTS: enabled}
    await w.restart()
    return w


async def counts(w: ReconcilerWorld) -> tuple[str | None, str | None, int | None]:
    """Return the starts of the JobSet, the resumes of its pods, and the attempts in the status of the TrainJob."""
    made = await w.job_set()
    pod = made["spec"]["replicatedJobs"][-1]["template"]["spec"]["template"]
    found = (each.get("metadata", {}).get("annotations") or {} for each in (made, pod))
    starts, resumes = (each.get(name) for each, name in zip(found, (STARTS, RESUMES), strict=True))
    return starts, resumes, (await w.server.get(TrainJob, KEY)).status.execution_attempts


async def run(w: ReconcilerWorld, *, restarts: int = 0) -> None:
    """Let the JobSet run until its pods are seen."""
    await w.reconcile()
    await w.server.observe(active=1, restarts=restarts)
    await w.reconcile()


async def stop(w: ReconcilerWorld, *, restarts: int = 0) -> None:
    """Suspend the TrainJob until its pods have stopped."""
    await w.suspend(True)
    await w.reconcile()
    await w.server.observe(suspended=1, restarts=restarts)
    await w.reconcile()


@pytest.mark.parametrize("policy", [PLAIN, GANG], ids=["plain", "gang"])
async def test_each_resume_is_counted_once_and_restarts_are_added(policy: dict[str, Any]) -> None:
    w = await enable(await world(policy))
    await run(w)
    assert await counts(w) == ("1", "0", 0)
    await run(w, restarts=2)
    assert await counts(w) == ("1", "0", 2)
    await stop(w, restarts=2)
    assert await counts(w) == ("1", "0", 2)
    await w.suspend(False)
    await run(w, restarts=2)
    assert await counts(w) == ("2", "1", 3)
    await w.restart()
    assert await w.reconcile() == []
    assert await counts(w) == ("2", "1", 3)


async def test_a_negative_number_of_restarts_counts_as_none() -> None:
    w = await enable(await world())
    await run(w, restarts=-3)
    assert await counts(w) == ("1", "0", 0)


async def test_a_train_job_that_is_created_suspended_was_not_started() -> None:
    w = await enable(await world())
    await w.suspend(True)
    await w.reconcile()
    assert await counts(w) == ("0", "0", None)
    await w.suspend(False)
    await run(w)
    assert await counts(w) == ("1", "0", 0)


async def test_containers_get_the_numbers_except_where_the_template_has_the_variable() -> None:
    w = await enable(await world())
    mine = {"name": "KUBEFLOW_TRAINER_RESTARTS", "value": "mine"}
    await w.train_job(
        lambda job: setattr(
            job.spec, "trainer", TrainJob.from_dict({"spec": {"trainer": {"env": [mine]}}}).spec.trainer
        )
    )
    await w.reconcile()
    path = "metadata.annotations['trainer.kubeflow.org/resumes']"
    resumes = {"name": "KUBEFLOW_TRAINER_RESUMES", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert (await w.pod())["containers"][0]["env"] == [mine, resumes]


async def test_a_job_set_that_is_built_again_continues_the_count() -> None:
    w = await enable(await world())
    await run(w, restarts=1)
    await stop(w, restarts=1)
    await w.edit_image()
    await w.suspend(False)
    assert "delete JobSet" in await w.reconcile()
    await w.server.collect()
    await run(w)
    assert await counts(w) == ("3", "2", 2)


async def test_a_job_set_is_not_deleted_before_its_restarts_are_in_the_status() -> None:
    w = await enable(await world())
    await run(w)
    await stop(w)
    await w.edit_image()
    await w.server.observe(suspended=1, restarts=4)  # while no manager ran
    await w.restart()
    assert "delete JobSet" not in await w.reconcile()
    assert "delete JobSet" in await w.reconcile()
    assert (await w.server.get(TrainJob, KEY)).status.execution_attempts == 4


async def test_a_crd_without_the_field_is_reported_and_the_job_set_is_kept() -> None:
    w = await enable(await world())
    await run(w)
    await stop(w)
    await w.edit_image()

    async def prune() -> None:
        job = await w.server.get(TrainJob, KEY)
        job.status.execution_attempts = None
        await w.server.status.update(job)

    await prune()
    await w.reconcile()
    await prune()
    with pytest.raises(UnstoredError, match="apply the CRDs"):
        await w.reconcile()
    assert "delete JobSet" in await w.reconcile()  # the status was stored at last


async def test_a_job_set_that_somebody_deleted_is_counted_from_the_status() -> None:
    w = await enable(await world())
    await run(w, restarts=1)
    await w.server.delete(await w.server.get(JobSet, KEY))
    await run(w)
    assert await counts(w) == ("3", "2", 2)


async def test_a_cache_that_is_behind_does_not_repeat_a_number() -> None:
    w = await enable(await world())
    await run(w)
    newer = await w.server.get(TrainJob, KEY)
    newer.status.execution_attempts = 5
    await w.restart(reader=FakeClient(newer))
    await w.server.delete(await w.server.get(JobSet, KEY))
    await w.reconcile()
    assert (await counts(w))[:2] == ("7", "6")


async def test_a_start_that_is_refused_is_not_counted() -> None:
    w = await enable(await world())
    await run(w)
    await stop(w)
    await w.suspend(False)
    w.server.refuse = lambda _obj: ConflictError("it changed")
    await w.reconcile()
    w.server.refuse = lambda _obj: None
    assert await counts(w) == ("1", "0", 0)
    await w.restart()
    await run(w)
    assert await counts(w) == ("2", "1", 1)


async def test_the_gate_changes_no_existing_job_set() -> None:
    w = await world()
    await run(w)
    await enable(w)
    assert await w.reconcile() == []
    await stop(w)
    await w.suspend(False)
    await run(w)
    assert await counts(w) == (None, None, None)
    assert "env" not in (await w.pod())["containers"][0]

    w = await enable(await world())
    await run(w)
    await enable(w, False)
    assert await w.reconcile() == []
    await stop(w)
    await w.suspend(False)
    await run(w)
    assert await counts(w) == ("2", "1", 1)


@pytest.mark.parametrize("text", ["", "-1", "x", "9" * 4000, "²"])
async def test_an_annotation_that_somebody_edited_stops_no_job(text: str) -> None:
    w = await enable(await suspended_world())
    await w.server.delete(await w.server.get(JobSet, KEY))
    await w.reconcile()
    live = await w.server.get(JobSet, KEY)
    live.metadata.annotations = {STARTS: text}
    await w.server.update(live, field_owner="admin")
    await w.suspend(False)
    await run(w)
    assert await counts(w) == ("1", "0", 0)


async def test_the_largest_number_is_not_exceeded() -> None:
    w = await enable(await world())
    await run(w)
    await stop(w)
    live = await w.server.get(JobSet, KEY)
    live.metadata.annotations = {STARTS: "9999999999"}
    await w.server.update(live, field_owner="admin")
    await w.suspend(False)
    await run(w, restarts=7)
    assert await counts(w) == ("2147483647", "2147483646", 2147483647)
