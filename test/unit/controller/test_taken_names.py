# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta

import pytest
from controller_runtime.reconcile import Result

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import KEY, train_job, world


async def test_the_job_set_of_an_earlier_job_of_that_name_is_waited_for_and_its_verdict_is_not_taken() -> (
    None
):
    w = await world()
    await w.reconcile()
    await w.finish("Completed")
    await w.server.delete(await w.server.get(TrainJob, KEY))
    w.server.add(train_job(metadata={"uid": "uid-of-the-next"}))
    assert await w.writes() == []
    assert w.result == Result(requeue_after=timedelta(seconds=1))
    await w.server.delete(await w.server.get(JobSet, KEY))  # the garbage collector does this
    assert await w.writes() == ["apply JobSet"]
    assert await w.conditions() == {}


async def test_a_job_set_that_something_else_controls_is_not_taken_over() -> None:
    owner = {"apiVersion": "a/v1", "kind": "Boss", "name": "b", "uid": "u", "controller": True}
    metadata = {"name": "job", "namespace": "ns", "ownerReferences": [owner]}
    w = await world({}, JobSet.from_dict({"metadata": metadata, "spec": {"suspend": True}}))
    with pytest.raises(ChildConflictError, match="jobset ns/job: controlled by Boss b"):
        await w.reconcile()
    assert w.server.writes == []
    assert "ns/job: controlled by Boss b" in w.recorder.events[0]


async def test_a_finished_job_does_not_care_who_took_the_name_of_its_job_set() -> None:
    w = await world()
    await w.reconcile()
    await w.finish("Completed")
    await w.reconcile()
    job_set = await w.server.get(JobSet, KEY)
    job_set.metadata.owner_references[0].uid = "another"  # type: ignore[index] # the reconciler sets one
    await w.server.update(job_set)
    await w.server.observe(active=3)  # its status must not be copied
    assert await w.writes() == []
