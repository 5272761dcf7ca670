# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule about the changes of objects is broken once, without managers: a rule that never fails protects nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from controller_runtime import simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.machinery import Object
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.sim import runtimes
from testkit.sim.objects import controlled_by
from testkit.sim.rules import Rules
from testkit.sim.spechistory import SpecHistory
from testkit.sim.users import AUDITED, UNKNOWN
from testkit.sim.webhook import PURPOSE

Document = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str = "True", time: str = TIME) -> Document:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": time}


class Writer:
    """Writes the objects of one TrainJob as no manager should."""

    def __init__(self, sim: Simulation) -> None:
        self.client = sim.client("admin")

    async def create(
        self, kind: type[Object], owner: Object | None = None, name: str = "job", **parts: Any
    ) -> Object:
        metadata = {"namespace": "default", "name": name, **parts.pop("metadata", {})}
        if owner is not None:
            gvk = type(owner).gvk
            metadata["ownerReferences"] = controlled_by(owner.to_dict(), gvk.api_version, gvk.kind)
        return await self.client.create(kind.from_dict({"metadata": metadata, **parts}))

    async def train_job(self, runtime: str = "plain", **spec: Any) -> Object:
        whole = {"runtimeRef": runtimes.reference_to(runtime), "trainer": {"image": "i"}, **spec}
        return await self.create(TrainJob, spec=whole)

    async def job_set(self, owner: Object, image: str = "i", *, suspend: bool = False) -> Object:
        pod = {"containers": [{"name": "node", "image": image}]}
        job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
        return await self.create(JobSet, owner, spec={"suspend": suspend, "replicatedJobs": [job]})

    async def status(self, obj: Object, *conditions: Document) -> Object:
        """Replace the conditions of an object."""
        document = (await self.client.get(type(obj), obj.key)).to_dict()
        document["status"] = {"conditions": [*conditions]}
        return await self.client.status.update(type(obj).from_dict(document))

    async def update(self, obj: Object, **parts: Any) -> Object:
        return await self.client.update(type(obj).from_dict({**obj.to_dict(), **parts}))

    # What is wrong.

    async def replace_keys(self) -> None:
        await self.update(await self.create(Secret, data={"k": "YQ=="}), data={"k": "Yg=="})

    async def change_foreign(self) -> None:
        other = await self.create(ConfigMap, metadata={"labels": {PURPOSE: "x"}}, data={"k": "a"})
        await self.update(other, data={"k": "b"})

    async def own_foreign(self) -> None:
        other = await self.create(ConfigMap, metadata={"labels": {PURPOSE: "x"}})
        owners = controlled_by((await self.train_job()).to_dict(), TrainJob.gvk.api_version, "TrainJob")
        await self.update(other, metadata={**other.to_dict()["metadata"], "ownerReferences": owners})

    async def delete_used_runtime(self) -> None:
        runtime = await self.client.create(runtimes.runtime("plain"))
        await self.train_job()
        await anyio.sleep(100.0)
        await self.client.delete(runtime)

    async def remove_condition(self) -> None:
        job = await self.train_job()
        await self.status(job, condition(AUDITED))
        await self.status(job)

    async def store_invalid(self) -> None:
        await self.train_job(podTemplateOverrides=[{"targetJobs": [{"name": UNKNOWN}]}])

    async def end_twice(self) -> None:
        job = await self.train_job()
        await self.status(await self.job_set(job), condition("Completed"), condition("Failed"))
        await self.status(job, condition("Complete"), condition("Failed"))

    async def end_early(self) -> None:
        await self.status(await self.train_job(), condition("Complete"))

    async def move_time(self) -> None:
        job = await self.train_job()
        await self.status(job, condition("Other"))
        await self.status(job, condition("Other", time="2026-01-02T00:00:00Z"))

    async def resume_running(self) -> None:
        await self.status(await self.train_job(), condition("Suspended", "False"))

    async def return_to_owner(self) -> None:
        job = await self.train_job()
        owned = (await self.job_set(job, suspend=True)).to_dict()
        free = {key: value for key, value in owned["metadata"].items() if key != "ownerReferences"}
        free = (await self.update(JobSet.from_dict(owned), metadata=free)).to_dict()["metadata"]
        owners = owned["metadata"]["ownerReferences"]
        await self.update(JobSet.from_dict(owned), metadata={**free, "ownerReferences": owners})

    async def build_after_end(self) -> None:
        job = await self.train_job()
        first = await self.job_set(job)
        await self.status(first, condition("Completed"))
        await self.status(job, condition("Complete"))
        await self.client.delete(first)
        await self.job_set(job)

    async def build_for_others(self) -> None:
        await self.job_set(await self.train_job(managedBy="kueue.x-k8s.io/multikueue"))

    async def start_other_spec(self) -> None:
        await self.job_set(await self.train_job(), image="other")

    async def start_suspended(self) -> None:
        job = await self.train_job(suspend=True)
        await self.job_set(job)

    async def start_alone(self) -> None:
        await self.job_set(await self.train_job("gang"))

    async def start_with_small_gang(self) -> None:
        job = await self.train_job("gang")
        await self.create(PodGroup, job, spec={"minMember": 3})
        await self.job_set(job)

    async def change_gang(self) -> None:
        job = await self.train_job("gang")
        group = await self.create(PodGroup, job, spec={"minMember": 1})
        await self.job_set(job)
        await self.update(group, spec={"minMember": 2})

    async def run_other_spec(self) -> None:
        owner = await self.job_set(await self.train_job())
        pod = {"containers": [{"name": "node", "image": "other"}]}
        job = await self.create(Job, owner, spec={"template": {"spec": pod}})
        await self.create(Pod, job, spec=pod)


BROKEN = {
    Writer.replace_keys: "keys of pods that may run were replaced",
    Writer.change_foreign: "the manager changed an object that it does not own",
    Writer.own_foreign: "an object of others was given an owner",
    Writer.delete_used_runtime: "a runtime was deleted while a TrainJob referred to it",
    Writer.remove_condition: "a condition of another writer was removed",
    Writer.store_invalid: "an invalid TrainJob is stored",
    Writer.end_twice: "a TrainJob is Complete and Failed",
    Writer.end_early: "a TrainJob is Complete and its JobSet was not",
    Writer.move_time: "the time of a condition changes without its status",
    Writer.resume_running: "a TrainJob is resumed that was not suspended",
    Writer.return_to_owner: "a JobSet was returned to an owner that released it",
    Writer.build_after_end: "the JobSet of a TrainJob that ended was built again",
    Writer.build_for_others: "a JobSet of a TrainJob that another controller manages",
    Writer.start_other_spec: "a JobSet starts with another spec than its TrainJob's",
    Writer.start_suspended: "a JobSet starts with another spec than its TrainJob's",
    Writer.start_alone: "a JobSet starts without a sibling",
    Writer.start_with_small_gang: "a sibling does not fit the running JobSet",
    Writer.change_gang: "a sibling does not fit the running JobSet",
    Writer.run_other_spec: "a pod runs another spec than its JobSet's",
}


@pytest.mark.parametrize(("breaks", "text"), BROKEN.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_change_that_breaks_a_rule_fails(breaks: Callable[[Writer], Awaitable[None]], text: str) -> None:
    def scenario(sim: Simulation) -> None:
        sim.serve(TrainJob, ClusterTrainingRuntime, JobSet, Job, Pod, ConfigMap, Secret, PodGroup)
        sim.on_change(Rules(sim, SpecHistory(sim), {}).see)
        sim.finally_(lambda sim: breaks(Writer(sim)))

    outcome = simtest.run(scenario, 1, steps=[], minutes=0.1, faults=0.0)
    assert str(outcome.failure).startswith(text)
