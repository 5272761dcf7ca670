# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule is broken once, without managers: a rule that never fails protects nothing."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod, Secret
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.rest import CompleteResponse, Request
from controller_runtime.simtest import MANAGER, Process, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.kai import v2alpha2 as kai
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.constants.kai import POD_GROUP_ANNOTATION_FOR_POD
from testkit.sim import calm, runtimes
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import Cluster
from testkit.sim.finalizercontrollers import FINALIZER, FinalizerControllers
from testkit.sim.grouperadministrators import GrouperAdministrators
from testkit.sim.groups import Groups
from testkit.sim.laggingoperators import LaggingOperators
from testkit.sim.lives import failure_of, serve_kinds
from testkit.sim.managers import Writes
from testkit.sim.objects import controlled_by
from testkit.sim.restchecks import RestChecks, state_problem
from testkit.sim.rules import Rules
from testkit.sim.snapshots import Snapshots
from testkit.sim.spechistory import SpecHistory
from testkit.sim.users import AUDITED, OTHERS, UNKNOWN, Users
from testkit.sim.webhook import PURPOSE
from testkit.sim.workloads import NODE_GROUP, NOTEBOOK_CRD, RAY_CRD, RayCluster, Workloads

Document = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str = "True", time: str = TIME, reason: str = "R") -> Document:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time}


def name_of(value: object) -> str:
    """Return the id of a function in a table, and none for a text."""
    return getattr(value, "__name__", "")


class Writer:
    """Writes the objects of one TrainJob as no manager should."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
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

    async def end_otherwise(self) -> None:
        job = await self.train_job(activeDeadlineSeconds=5)
        await self.status(await self.job_set(job), condition("Failed"))
        for reason in ("DeadlineExceeded", "FailedJobs"):
            await self.status(job, condition("Failed", reason=reason))

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
    Writer.end_otherwise: "a TrainJob that failed at its deadline has another reason now",
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


@pytest.mark.parametrize(("breaks", "text"), BROKEN.items(), ids=name_of)
def test_a_change_that_breaks_a_rule_fails(
    breaks: Callable[[Writer], Coroutine[Any, Any, None]], text: str
) -> None:
    def prepare(sim: Simulation) -> None:
        serve_kinds(sim)
        sim.on_change(Rules(sim, SpecHistory(sim), {}).see)

    assert failure_of(prepare, lambda sim: breaks(Writer(sim))).startswith(text)


class AtRest(Writer):
    """Leaves a cluster at rest in states in which no manager should leave it."""

    async def held_runtime(self) -> Object:
        runtime = runtimes.runtime("plain")
        runtime.metadata.finalizers = [constants.RESOURCE_IN_USE_FINALIZER]
        return await self.client.create(runtime)

    async def suspended(self, **status: Any) -> Object:
        """Create a suspended TrainJob and its JobSet, which agree."""
        await self.held_runtime()
        job = await self.train_job(suspend=True)
        await self.status(job, condition("Suspended"))
        job_set = await self.job_set(job, suspend=True)
        await self.client.status.update(JobSet.from_dict({**job_set.to_dict(), "status": status}))
        return job

    async def keep_deleted(self) -> None:
        job = await self.train_job()
        job.metadata.finalizers = ["example.com/kept"]
        await self.client.delete(await self.client.update(job))

    async def build_for_others(self) -> None:
        await self.job_set(await self.train_job(managedBy=OTHERS))

    async def keep_overdue(self) -> None:
        job = await self.train_job(activeDeadlineSeconds=5)
        await self.status(job, condition("Failed", reason="DeadlineExceeded"))
        await self.job_set(job)

    async def forget_condition(self) -> None:
        await self.train_job(suspend=True)

    async def hide_obstacle(self) -> None:
        await self.train_job()
        await self.create(JobSet, spec={"replicatedJobs": []})

    async def build_nothing(self) -> None:
        await self.held_runtime()
        await self.train_job()

    async def overlook_end(self) -> None:
        await self.held_runtime()
        await self.status(await self.job_set(await self.train_job()), condition("Completed"))

    async def suspend_alone(self) -> None:
        await self.held_runtime()
        await self.job_set(await self.train_job(), suspend=True)

    async def run_for_ever(self) -> None:
        await self.held_runtime()
        await self.job_set(await self.train_job())

    async def count_nothing(self) -> None:
        await self.suspended(replicatedJobsStatus=[{"name": "node", "ready": 1}])

    async def keep_note(self) -> None:
        noted = {"metadata": {"annotations": {constants.SUSPENDED_ANNOTATION: "2"}}}
        await self.client.patch(await self.suspended(), raw_patch(MERGE, json.dumps(noted).encode()))

    async def outlive(self) -> None:
        job = await self.train_job(managedBy=OTHERS)
        job.metadata.uid = "other"
        await self.create(Pod, job, spec={"containers": []})

    async def release_used_runtime(self) -> None:
        await self.client.create(runtimes.runtime("plain"))
        await self.train_job(managedBy=OTHERS)

    async def hold_unused_runtime(self) -> None:
        await self.client.delete(await self.held_runtime())

    async def differ(self) -> None:
        await self.suspended()

    async def write_again(self) -> None:
        written = await self.create(ConfigMap)
        again = raw_patch(MERGE, b"{}")
        for _ in range(10):
            await self.sim.client("manager-0").patch(written, again)
            await anyio.sleep(20.0)

    async def write_for_ever(self) -> None:
        written = await self.create(ConfigMap)
        for number in range(100):
            await self.client.patch(written, raw_patch(MERGE, b'{"data":{"n":"%d"}}' % number))
            await anyio.sleep(20.0)


AT_REST = {
    AtRest.keep_deleted: "a TrainJob cannot be deleted",
    AtRest.build_for_others: "a TrainJob of another controller was touched",
    AtRest.keep_overdue: "a TrainJob past its deadline has a JobSet",
    AtRest.forget_condition: "the condition Suspended is wrong",
    AtRest.build_nothing: "a TrainJob has no JobSet",
    AtRest.run_for_ever: "a TrainJob neither ended nor was suspended",
    AtRest.outlive: "an object outlived its owner: Pod job",
    AtRest.release_used_runtime: "a runtime in use has no finalizer",
    AtRest.hold_unused_runtime: "a runtime without TrainJobs cannot be deleted",
    AtRest.differ: "a child differs from a fresh render: JobSet job",
    AtRest.write_again: "a write in a quiet cluster",
    AtRest.write_for_ever: "the cluster does not come to rest",
}
IN_TIME = {
    AtRest.keep_deleted: "a TrainJob is not deleted",
    AtRest.hide_obstacle: "an obstacle is not reported: JobSet job",
    AtRest.forget_condition: "the condition Suspended is wrong",
    Writer.train_job: "a missing runtime is not reported",
    AtRest.build_nothing: "a TrainJob has no JobSet",
    AtRest.suspend_alone: "a JobSet is not suspended as its TrainJob",
    AtRest.overlook_end: "a TrainJob has not ended as its JobSet",
    AtRest.count_nothing: "jobsStatus is not the JobSet's",
    AtRest.keep_note: "a suspension is noted after its end",
}


@pytest.mark.parametrize(("breaks", "text"), AT_REST.items(), ids=name_of)
def test_a_state_that_breaks_a_rule_of_rest_fails(
    breaks: Callable[[AtRest], Coroutine[Any, Any, None]], text: str
) -> None:
    ends: list[RestChecks] = []

    def prepare(sim: Simulation) -> None:
        serve_kinds(sim)
        past = SpecHistory(sim)
        sim.on_change(past.see)
        end = RestChecks(Users(1), Administrators(Cluster()), past)
        sim.on_change(lambda event: end.see(sim, event))
        ends.append(end)

    async def check(sim: Simulation) -> None:
        await anyio.sleep(1.0)
        await ends[0].check_rest(sim)

    assert failure_of(prepare, check, [lambda sim: breaks(AtRest(sim))]).startswith(text)


@pytest.mark.parametrize(("breaks", "text"), IN_TIME.items(), ids=name_of)
def test_a_manager_that_does_not_follow_is_noticed(
    breaks: Callable[[Any], Coroutine[Any, Any, Any]], text: str
) -> None:
    found: list[str | None] = []

    async def look(sim: Simulation) -> None:
        await breaks(AtRest(sim))
        found.extend([await state_problem(sim, job) for job in sim.server.objects(TrainJob)])

    assert failure_of(serve_kinds, look) == "None"
    assert found == [text]


class Late(Writer):
    """Breaks the rules about times."""

    async def build_late(self) -> None:
        job = await self.train_job(activeDeadlineSeconds=1)
        await anyio.sleep(30.0)
        await self.job_set(job)

    async def end_suspended(self) -> None:
        await self.end_after(0.0, activeDeadlineSeconds=1, suspend=True)

    async def end_early(self) -> None:
        await self.end_after(0.0, activeDeadlineSeconds=100)

    async def end_late(self) -> None:
        await self.end_after(100.0, activeDeadlineSeconds=1)

    async def end_after(self, seconds: float, **spec: Any) -> None:
        job = await self.train_job(**spec)
        await anyio.sleep(seconds)
        await self.status(job, condition("Failed", reason="DeadlineExceeded"))

    async def suspend_before(self) -> None:
        await self.status(await self.train_job(suspend=True), condition("Suspended"))


LATE = {
    Late.build_late: "a JobSet is built 29 s after the deadline",
    Late.end_suspended: "a TrainJob without a deadline has failed at it",
    Late.end_early: "a TrainJob fails 100 s before its deadline",
    Late.end_late: "a TrainJob fails 99 s after its deadline",
    Late.suspend_before: "the condition Suspended changes with a time of",
}


@pytest.mark.parametrize(("breaks", "text"), LATE.items(), ids=name_of)
def test_a_change_at_a_wrong_time_fails(
    breaks: Callable[[Late], Coroutine[Any, Any, None]], text: str
) -> None:
    def prepare(sim: Simulation) -> None:
        serve_kinds(sim)
        sim.on_change(functools.partial(calm.is_in_time, sim))

    assert failure_of(prepare, lambda sim: breaks(Late(sim))).startswith(text)


class Grouper(Writer):
    """Groups pods as no pod grouper should."""

    async def job_pod(self) -> tuple[Object, Object, str, str]:
        """Create a Job and its pod; return both, the name of the pod's group, and that of a pod without owners."""
        job = await self.create(Job, name="j", spec={"template": {"spec": {"containers": []}}})
        pod = await self.create(Pod, job, "p", spec={"containers": []})
        return job, pod, f"pg-p-{job.metadata.uid}", f"pg-p-{pod.metadata.uid}"

    async def group(self, name: str, owner: Object | None = None, members: int = 1) -> Object:
        return await self.create(kai.PodGroup, owner, name, spec={"minMember": members})

    async def mark(self, pod: Object, name: str) -> Object:
        body = json.dumps({"metadata": {"annotations": {POD_GROUP_ANNOTATION_FOR_POD: name}}})
        return await self.client.patch(pod, raw_patch(MERGE, body.encode()))

    async def warn(self, message: str) -> None:
        about = {"kind": "Pod", "name": "p", "namespace": "default"}
        await self.create(Event, name="e", message=message, involvedObject=about, reason="R", type="Warning")

    async def invent(self) -> None:
        await self.group("pg-x")

    async def mark_strangely(self) -> None:
        await self.mark((await self.job_pod())[1], "pg-x")

    async def take_out(self) -> None:
        job, pod, right, alone = await self.job_pod()
        for name in (right, alone):
            await self.group(name, job)
            await self.mark(pod, name)

    async def mark_without_group(self) -> None:
        _, pod, right, _ = await self.job_pod()
        await self.mark(pod, right)

    async def mark_wrongly(self) -> None:
        _, pod, _, alone = await self.job_pod()
        await self.group(alone)
        await self.mark(pod, alone)

    async def group_again(self) -> None:
        job, pod, right, alone = await self.job_pod()
        await self.group(right, job)
        await self.group(alone)
        await self.mark(pod, right)
        await self.client.patch(pod, raw_patch(MERGE, b'{"metadata":{"ownerReferences":null}}'))
        await anyio.sleep(10.0)
        await self.mark(pod, alone)

    async def miss_owner(self) -> None:
        await self.warn(f"Owner resource with uid {(await self.job_pod())[0].metadata.uid} not found")

    async def report_group(self) -> None:
        job, _, right, _ = await self.job_pod()
        await self.group(right, job)
        await self.warn(f'podgroups.scheduling.run.ai "{right}" already exists')

    async def forget(self) -> None:
        await self.job_pod()

    async def forget_sub_group(self) -> None:
        group = {"groupName": "w", "replicas": 1}
        cluster = await self.create(RayCluster, name="r", spec={"workerGroupSpecs": [group]})
        labels = {NODE_GROUP: "w"}
        pod = await self.create(Pod, cluster, "p", metadata={"labels": labels}, spec={"containers": []})
        name = f"pg-r-{cluster.metadata.uid}"
        await self.group(name, cluster, 2)
        await self.mark(pod, name)

    async def grouped(self, owner: Object | None = None, members: int = 1) -> Object:
        """Put a pod of a Job into its group, whose owner may be another object than the Job."""
        job, pod, right, _ = await self.job_pod()
        made = await self.group(right, owner or job, members)
        await self.mark(pod, right)
        return made

    async def take_from_stranger(self) -> None:
        job, pod, *_ = await self.job_pod()
        await self.create(Pod, job, "q", spec={"containers": []})
        group = await self.group(f"pg-q-{job.metadata.uid}", job)
        self.sim.server.denied.add((MANAGER, "*", "jobs.batch"))
        await self.mark(pod, group.name)

    async def copy_dead_group(self) -> None:
        mark = {POD_GROUP_ANNOTATION_FOR_POD: "pg-p-00000000-0000-0000-0000-000000000000"}
        await self.create(Pod, name="p", metadata={"annotations": mark}, spec={"containers": []})

    async def stay_in_deleted_group(self) -> None:
        cluster = await self.create(RayCluster, name="r", spec={"workerGroupSpecs": []})
        job = await self.create(Job, cluster, "j", spec={"template": {"spec": {"containers": []}}})
        pod = await self.create(Pod, job, "p", metadata={"labels": {"a": "b"}}, spec={"containers": []})
        group = await self.group(f"pg-r-{cluster.metadata.uid}", cluster)
        await self.mark(pod, group.name)
        await self.client.delete(group)
        await self.client.patch(job, raw_patch(MERGE, b'{"metadata":{"ownerReferences":null}}'))

    async def delete_group(self) -> None:
        await self.client.delete(await self.grouped())

    async def own_wrongly(self) -> None:
        await self.grouped(await self.create(ConfigMap))

    async def size_wrongly(self) -> None:
        await self.grouped(members=5)

    async def outlive(self) -> None:
        pod = await self.create(Pod, name="p", spec={"containers": []})
        owner = await self.create(ConfigMap)
        owner.metadata.uid = "other"
        name = f"pg-p-{pod.metadata.uid}"
        await self.group(name, owner)
        await self.mark(pod, name)


GROUPED = {
    Grouper.invent: "a group exists that no pod may belong to",
    Grouper.mark_strangely: "a pod was given the group of owners that it never had",
    Grouper.take_out: "a pod was taken out of its group",
    Grouper.mark_without_group: "a pod was given a group that does not exist",
    Grouper.mark_wrongly: "a pod was given the wrong group",
    Grouper.group_again: "a pod that was released by its owners is grouped again",
    Grouper.miss_owner: "an owner that exists was not found",
    Grouper.report_group: "a group that exists is reported as an error",
    Grouper.forget: "a pod is not in its group",
    Grouper.forget_sub_group: "a pod is not in its subgroup",
    Grouper.take_from_stranger: "a pod was given a stranger's group",
    Grouper.copy_dead_group: "a pod names a dead group of its own",
    Grouper.stay_in_deleted_group: "a pod is in a group that does not exist",
    Grouper.delete_group: "the group of a pod does not exist",
    Grouper.own_wrongly: "a group has another owner",
    Grouper.size_wrongly: "a group has the wrong size",
    Grouper.outlive: "a group outlived its owner",
}


@pytest.mark.parametrize(("breaks", "text"), GROUPED.items(), ids=name_of)
def test_a_change_that_breaks_a_rule_of_groups_fails(
    breaks: Callable[[Grouper], Coroutine[Any, Any, None]], text: str
) -> None:
    rules: list[Groups] = []

    def prepare(sim: Simulation) -> None:
        sim.serve(Pod, Job, JobSet, TrainJob, kai.PodGroup, ConfigMap)
        sim.server.serve_crds([RAY_CRD, NOTEBOOK_CRD])
        rules.append(Groups(sim))
        sim.on_change(rules[0].see)

    async def check(sim: Simulation) -> None:
        await breaks(Grouper(sim))
        if not sim.failures:
            await rules[0].check(sim)

    assert failure_of(prepare, check).startswith(text)


class Others(Writer):
    """Disturbs what others have written, and writes wrong snapshots of runtimes."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self.past = SpecHistory(sim)
        self.snapshots = Snapshots(sim, self.past)
        for see in (self.past.see, self.snapshots.see):
            sim.on_change(see)

    async def snapshot(self, owner: Object, *images: str) -> Object:
        """Create the snapshot of a TrainJob; give it one runtime after the other, each with another image."""
        stored: Object | None = None
        for image in images:
            runtime = json.loads(json.dumps(runtimes.runtime("plain").to_dict()).replace('"i"', f'"{image}"'))
            data = {"runtime": json.dumps(runtime)}
            if stored is None:
                stored = await self.create(ConfigMap, owner, "job-runtime-snapshot", data=data)
            else:
                stored = await self.update(stored, data=data)
        assert stored is not None
        return stored

    async def keep_wrong_runtime(self) -> None:
        await self.client.create(runtimes.runtime("plain"))
        await self.snapshot(await self.train_job(), "other")

    async def keep_nothing(self) -> None:
        self.snapshots.check(self.sim, (await self.train_job()).to_dict())

    async def return_wrong_runtime(self) -> None:
        await self.client.create(runtimes.runtime("plain"))
        job = await self.train_job()
        await self.snapshot(job, "i", "edited")

        async def restore() -> None:
            await anyio.sleep(5.0)
            await self.snapshot(job, "i")

        async with anyio.create_task_group() as group:
            group.start_soon(restore)
            await self.snapshots.check_return(self.sim)

    async def remove_finalizer(self) -> None:
        FinalizerControllers(self.sim, {})
        runtime = runtimes.runtime("plain")
        runtime.metadata.finalizers = [FINALIZER]
        stored = await self.client.create(runtime)
        await self.client.patch(stored, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))

    async def change_queue(self) -> None:
        administrators = GrouperAdministrators(self.sim)
        group = await self.create(kai.PodGroup, name="pg", spec={"minMember": 1})
        await administrators.requeue(self.sim, random.Random(1))
        await self.client.patch(group, raw_patch(MERGE, b'{"spec":{"queue":"lost"}}'))

    async def group_for_deleted(self) -> None:
        operators = LaggingOperators(self.sim, Workloads())
        owner = await self.create(ConfigMap)
        operators._gone.add(owner.metadata.uid or "")
        await self.create(kai.PodGroup, owner, "pg", spec={"minMember": 1})


OTHERS_DISTURBED = {
    Others.keep_wrong_runtime: "a snapshot contains another runtime: job-runtime-snapshot",
    Others.keep_nothing: "a TrainJob has no snapshot: job",
    Others.return_wrong_runtime: "a snapshot comes back with another runtime: job",
    Others.remove_finalizer: "the finalizer of another controller is removed: plain",
    Others.change_queue: "a group loses values that others set: pg: queue",
    Others.group_for_deleted: "a group is created for a deleted owner: pg",
}


@pytest.mark.parametrize(("breaks", "text"), OTHERS_DISTURBED.items(), ids=name_of)
def test_a_change_of_what_others_have_written_fails(
    breaks: Callable[[Others], Coroutine[Any, Any, None]], text: str
) -> None:
    others: list[Others] = []

    def prepare(sim: Simulation) -> None:
        sim.serve(TrainJob, ClusterTrainingRuntime, JobSet, Job, Pod, ConfigMap, kai.PodGroup)
        others.append(Others(sim))

    assert failure_of(prepare, lambda _: breaks(others[0])) == text


class Sender(Writer):
    """Sends the requests of a manager."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self.rules = Writes(sim)
        self.manager = Process("manager-0")

    def send(self, method: str, obj: Object, body: Document, **query: str) -> Request:
        plural = {TrainJob: "trainjobs", JobSet: "jobsets"}[type(obj)]
        path = f"/apis/{type(obj).gvk.api_version}/namespaces/default/{plural}/{obj.name}"
        headers = {"Content-Type": "application/apply-patch+yaml"} if query else {}
        request = Request(
            method, path, query=tuple(query.items()), headers=headers, body=json.dumps(body).encode()
        )
        self.rules.sends(self.manager, request)
        return request

    def answer(self, request: Request, version: str) -> None:
        body = json.dumps({"metadata": {"resourceVersion": version, "uid": "u"}}).encode()
        self.rules.answered(self.manager, request, CompleteResponse(200, body))

    async def write_from_old_view(self) -> None:
        job = await self.train_job()
        self.answer(self.send("PUT", job, {"metadata": {"resourceVersion": "2"}}), "5")
        self.send("PUT", job, {"metadata": {"resourceVersion": "4"}})

    async def repeat(self) -> None:
        job = await self.train_job()
        for _ in range(2):
            self.answer(self.send("PUT", job, {"metadata": {"resourceVersion": "5"}}), "5")

    async def apply_to_deleted(self) -> None:
        job = await self.train_job()
        job.metadata.finalizers = ["example.com/kept"]
        await self.client.delete(await self.client.update(job))
        held = await self.client.get(TrainJob, job.key)
        body = {"metadata": {"name": "job", "resourceVersion": held.metadata.resource_version}}
        self.send("PATCH", job, body, fieldManager="trainer", force="true")

    async def delete_active(self, **status: Any) -> None:
        job_set = await self.job_set(await self.train_job())
        stored = await self.client.status.update(JobSet.from_dict({**job_set.to_dict(), "status": status}))
        self.send("DELETE", job_set, {"preconditions": {"resourceVersion": stored.metadata.resource_version}})

    async def delete_running(self) -> None:
        await self.delete_active(replicatedJobsStatus=[{"name": "node", "active": 1}])

    async def delete_unseen(self) -> None:
        await self.delete_active()

    async def delete_completed(self) -> None:
        job = await self.train_job()
        job_set = await self.job_set(job)
        await self.status(job, condition("Complete"))
        self.send("DELETE", job_set, {"preconditions": {"uid": job_set.metadata.uid}})


SENT = {
    Sender.write_from_old_view: "a write from a view older than an own write: manager-0 PUT",
    Sender.repeat: "a write whose answer was known",
    Sender.apply_to_deleted: "an apply to an object that is being deleted",
    Sender.delete_running: "a JobSet is built again while its Jobs are active",
    Sender.delete_unseen: "a JobSet is built again before its controller has seen it",
    Sender.delete_completed: "the JobSet of a TrainJob that is Complete is deleted: manager-0",
}


@pytest.mark.parametrize(("breaks", "text"), SENT.items(), ids=name_of)
def test_a_request_that_breaks_a_rule_is_noticed(
    breaks: Callable[[Sender], Coroutine[Any, Any, None]], text: str
) -> None:
    found: list[str] = []

    async def act(sim: Simulation) -> None:
        await breaks(Sender(sim))
        found.extend(map(str, sim.failures))
        sim.failures.clear()

    assert failure_of(serve_kinds, act) == "None"
    assert [each.startswith(text) for each in found] == [True], found
