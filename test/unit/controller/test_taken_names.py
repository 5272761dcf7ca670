# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta
from typing import Any

import pytest
from controller_runtime.reconcile import Result

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.util.trainjob import ChildConflictError
from testkit.trainjobs import MakeBench, MakeJob, kinds


async def test_the_job_set_of_an_earlier_job_of_that_name_is_waited_for_and_its_verdict_is_not_taken(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    await b.finish("Completed")
    await b.client.delete(await b.train_job())
    successor = new_train_job()
    successor.metadata.uid = "uid-of-the-next"
    b.client.add(successor)
    assert await b.reconcile() == []
    assert b.result == Result(requeue_after=timedelta(seconds=1))
    await b.client.delete(await b.job_set())  # the garbage collector does this
    assert kinds(await b.reconcile()) == [("apply", "JobSet")]
    assert await b.conditions() == {}


async def test_a_job_set_that_something_else_controls_is_not_taken_over(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    foreign = JobSet.from_dict(
        {
            "metadata": {
                "name": "job",
                "namespace": "ns",
                "ownerReferences": [
                    {"apiVersion": "a/v1", "kind": "Boss", "name": "b", "uid": "u", "controller": True}
                ],
            },
            "spec": {"suspend": True},
        }
    )
    b = bench(new_train_job(), foreign)
    with pytest.raises(ChildConflictError, match="jobset ns/job: controlled by Boss b"):
        await b.reconcile()
    assert b.client.writes == []
    assert "ns/job: controlled by Boss b" in recorder.events[0][2]


async def test_a_finished_job_does_not_care_who_took_the_name_of_its_job_set(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    await b.finish("Completed")
    await b.reconcile()
    job_set = await b.job_set()
    job_set.metadata.owner_references[0].uid = "another"  # type: ignore[index] # the stub sets one
    await b.client.update(job_set)
    assert await b.reconcile() == []
