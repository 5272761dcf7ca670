# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob with a number with which no pod can run has a condition, and no JobSet that hangs."""

from __future__ import annotations

import contextlib

import pytest

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.framework import InvalidFieldError
from testkit.trainjobs import KEY, PLAIN, ReconcilerWorld, world


async def condition(w: ReconcilerWorld) -> tuple[str, str, str] | None:
    job = await w.server.get(TrainJob, KEY)
    found = [each for each in job.status.conditions or () if each.type == "SpecInvalid"]
    return (found[0].status, found[0].reason, found[0].message) if found else None


async def test_a_negative_number_of_nodes_is_a_condition_until_it_is_corrected() -> None:
    w = await world(PLAIN, suspend=True)
    await w.edit_nodes(-1)
    with pytest.raises((InvalidFieldError, ExceptionGroup)):
        await w.reconcile()

    text = "spec.trainer.numNodes must be at least 1: -1 pods of job node are not possible"
    assert await condition(w) == ("True", "InvalidField", text)
    assert await w.server.list(JobSet) == []

    await w.edit_nodes(2)
    with contextlib.suppress(ExceptionGroup):
        await w.reconcile()
    assert await condition(w) is None
    assert len(await w.server.list(JobSet)) == 1


async def test_zero_nodes_are_built_as_upstream_builds_them() -> None:
    w = await world(PLAIN)
    await w.edit_nodes(0)
    await w.reconcile()
    assert await condition(w) is None
    assert (await w.job_set())["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 0
