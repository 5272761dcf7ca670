# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Rules that need a sequence of actions, or a manager, are broken once: see ``test_rules.py`` for all others."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import controller_runtime as ctrl
import pytest
from controller_runtime import simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod, Secret
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.serving import HTTPRequest, HTTPResponse
from controller_runtime.simtest import MANAGER, Simulation

from pkg import features, podgrouper
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.kai import v2alpha2 as kai
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import TrainJobReconciler
from testkit.sim import runtimes
from testkit.sim.administrators import Administrators
from testkit.sim.calm import Calm
from testkit.sim.cluster import Cluster, world
from testkit.sim.kueue import USER, Kueue
from testkit.sim.lives import Act, failure_of, serve_kinds
from testkit.sim.managers import check_managers, revoke
from testkit.sim.objects import controlled_by, is_deleted, owned, refusals_expected
from testkit.sim.restchecks import RestChecks
from testkit.sim.spechistory import SpecHistory
from testkit.sim.stories import Stories
from testkit.sim.trainers import Trainers
from testkit.sim.users import Users

Document = dict[str, Any]
NAME = "job-0"
JOB_SETS = "jobsets.jobset.x-k8s.io"


def child(kind: type[Object], job: Document, suffix: str = "", **parts: Any) -> Object:
    metadata = {"namespace": "default", "name": job["metadata"]["name"] + suffix}
    metadata["ownerReferences"] = controlled_by(job, TrainJob.gvk.api_version, "TrainJob")
    return kind.from_dict({"metadata": metadata, **parts})


async def build(sim: Simulation) -> None:
    """Build a running JobSet of a former spec for each TrainJob, and siblings, as no manager should."""
    pod = {"containers": [{"name": "node", "image": "former"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    while True:
        for job in sim.server.objects(TrainJob):
            for made in (
                child(JobSet, job, spec={"replicatedJobs": jobs}),
                child(PodGroup, job, spec={"minMember": 1}),
                child(ConfigMap, job, "-mpi-hostfile", data={"hostfile": ""}),
            ):
                with refusals_expected():
                    await sim.client("admin").create(made)
        await anyio.sleep(0.5)


async def collect(sim: Simulation) -> None:
    """Delete the children of deleted TrainJobs."""
    while True:
        sim.server.collect_garbage()
        await anyio.sleep(0.5)


async def report_too_soon(sim: Simulation) -> None:
    """Report at once that a TrainJob waits for the deletion of its JobSet."""
    while True:
        await anyio.sleep(0.5)
        for job in sim.server.objects(TrainJob):
            if any(is_deleted(each) for each in owned(sim, JobSet, job)):
                about = {
                    "kind": "TrainJob",
                    "name": NAME,
                    "namespace": "default",
                    "uid": job["metadata"]["uid"],
                }
                event = {"reason": "WaitingForDeletion", "type": "Warning", "involvedObject": about}
                metadata = {"namespace": "default", "name": "early"}
                with refusals_expected():
                    await sim.client("admin").create(Event.from_dict({"metadata": metadata, **event}))


STORIES: list[tuple[Callable[..., Awaitable[None]], list[Act], str]] = [
    (Stories.move, [build], "a JobSet keeps the former spec"),
    (Stories.hold_long, [build], "a deletion that lasts is not reported"),
    (Stories.hold_long, [build, report_too_soon], "a deletion that does not last is reported"),
    (Stories.resume_beside_deleted, [build, collect], "a JobSet starts beside a sibling that is deleted"),
    (Stories.delete_held, [build], "a JobSet was built for a TrainJob that is being deleted"),
]


@pytest.mark.parametrize(("story", "beside", "text"), STORIES, ids=[text for *_, text in STORIES])
def test_a_story_with_a_wrong_end_fails(
    story: Callable[..., Awaitable[None]], beside: list[Act], text: str
) -> None:
    cluster, users = Cluster(), Users(1)

    async def tell(sim: Simulation) -> None:
        rng = random.Random(1)
        await Administrators(cluster).install(sim)
        await users.create(sim, rng, NAME, "plain", suspend=True)
        await anyio.sleep(2.0)
        await story(Stories(users, cluster.nodes), sim, rng, NAME)

    assert failure_of(serve_kinds, tell, beside) == f"{text}: {NAME}"


def calm_of(sim: Simulation, cluster: Cluster) -> Calm:
    users, administrators, past = Users(6), Administrators(cluster), SpecHistory(sim)
    return Calm(users, administrators, RestChecks(users, administrators, past), cluster.nodes)


class Managed:
    """A cluster with managers, of which each method breaks a rule."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.end: RestChecks | None = None

    def prepare(self, sim: Simulation) -> None:
        self.cluster = world(sim, pods_fail=0.0, gates={features.TRAIN_JOB_STATUS: False})

    async def neglect(self, sim: Simulation) -> None:
        """Let users act while the managers may not write JobSets."""
        await Administrators(self.cluster).install(sim)
        sim.server.denied |= {(MANAGER, verb, JOB_SETS) for verb in ("create", "patch", "apply", "delete")}
        await calm_of(sim, self.cluster).check(sim)

    async def lose_keys(self, sim: Simulation) -> None:
        """Delete the Secret of a TrainJob while the managers may not create Secrets."""
        users, past = Users(1), SpecHistory(sim)
        sim.on_change(past.see)
        administrators = Administrators(self.cluster)
        await administrators.install(sim)
        await users.create(sim, random.Random(1), NAME, "mpi", suspend=True)
        await anyio.sleep(20.0)
        end = RestChecks(users, administrators, past)
        (job,) = sim.server.objects(TrainJob)
        await end.check_children(sim, job)
        sim.server.denied |= {(MANAGER, verb, "secrets") for verb in ("create", "patch", "apply")}
        (secret,) = owned(sim, Secret, job)
        await sim.client().delete(Secret.from_dict(secret))
        await end.check_children(sim, job)

    async def report_nothing(self, sim: Simulation) -> None:
        """Deny a kind to managers whose readiness says nothing about their caches."""
        await anyio.sleep(10.0)
        for manager in sim.managers.values():
            manager.cache.remarks = list  # type: ignore[method-assign]  # as a manager that forgets its cache
        await revoke(sim, random.Random(1))

    async def report_denial(self, sim: Simulation) -> None:
        """Leave a kind denied."""
        sim.server.denied |= {(MANAGER, verb, JOB_SETS) for verb in ("list", "watch")}
        sim.server.watches.cut()
        await anyio.sleep(30.0)
        await check_managers(sim)

    async def remember_train_job(self, sim: Simulation) -> None:
        """Remember a TrainJob that does not exist."""
        await anyio.sleep(10.0)
        for replica in sim.rules.replicas.values():
            for each in replica.reconcilers:
                if isinstance(each, TrainJobReconciler):
                    each._memories[NamespacedName("default", "gone")].rebuilt = b""
        await check_managers(sim)


MANAGED = {
    Managed.neglect: "the manager does not follow: a TrainJob has no JobSet",
    Managed.lose_keys: f"the Secret with the keys for MPI is missing or not wanted: {NAME}",
    Managed.report_nothing: "readiness does not report a denied kind",
    Managed.report_denial: "readiness reports a problem in a healthy cluster",
    Managed.remember_train_job: "TrainJobs are remembered too long",
}


@pytest.mark.parametrize(("breaks", "text"), MANAGED.items(), ids=[each.__name__ for each in MANAGED])
def test_a_manager_that_breaks_a_rule_is_noticed(breaks: Callable[..., Any], text: str) -> None:
    managed = Managed()
    assert failure_of(managed.prepare, lambda sim: breaks(managed, sim)).startswith(text)


def test_a_pod_that_is_remembered_too_long_is_noticed() -> None:
    settings = podgrouper.Settings()

    async def setup(mgr: ctrl.Manager) -> None:
        await podgrouper.setup(mgr, settings)

    def prepare(sim: Simulation) -> None:
        sim.serve(Pod, Job, JobSet, TrainJob, kai.PodGroup, PriorityClass, ConfigMap)
        only = ctrl.manager.ControllerDefaults(skip_name_validation=True)
        sim.manager(setup, options=simtest.options(controller=only))

    async def remember(sim: Simulation) -> None:
        await anyio.sleep(10.0)
        for replica in sim.rules.replicas.values():
            for each in replica.reconcilers:
                if isinstance(each, podgrouper.PodReconciler):
                    each._own_writes[NamespacedName("default", "gone")] = None  # type: ignore[assignment]
        await check_managers(sim)

    assert failure_of(prepare, remember).startswith("pods are remembered too long")


def test_a_field_that_a_client_removes_without_knowing_it_is_noticed() -> None:
    pod = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    jobs = {"spec": {"replicatedJobs": [{"name": "node", "template": pod}]}}
    patch = {"manager": USER, "trainingRuntimeSpec": {"template": jobs}}

    async def admit(sim: Simulation) -> None:
        metadata = {
            "namespace": "default",
            "name": "queued-0",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        }
        spec = {"runtimeRef": runtimes.reference_to("plain"), "suspend": True, "runtimePatches": [patch]}
        await sim.client().create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))
        kueue = Kueue()
        for _ in range(3):
            await kueue.step(sim, random.Random(1))

    failure = failure_of(serve_kinds, admit)
    assert failure == "a client that does not know a field has removed it: queued-0: runtimePatches"


CHAIN: list[tuple[type[Object], type[Object], Document]] = [
    (JobSet, TrainJob, {"replicatedJobs": []}),
    (Job, JobSet, {"template": {"spec": {}}}),
    (Pod, Job, {"containers": []}),
]


async def accept(_: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text("", status=200)


@pytest.mark.parametrize(
    ("is_own", "text"),
    [
        (False, "a report of a stranger was accepted: job"),
        (True, "an accepted report was not stored: job"),
    ],
)
def test_a_report_that_is_accepted_wrongly_is_noticed(is_own: bool, text: str) -> None:
    clusters: list[Cluster] = []

    async def send(sim: Simulation) -> None:
        await anyio.sleep(10.0)
        (trainers,) = [each.trainers for each in clusters]
        assert trainers is not None
        for name, server in trainers._servers.items():
            trainers._servers[name] = server._replace(handler=accept)  # type: ignore[arg-type]
        await sim.client("admin").create(runtimes.runtime("plain"))
        spec = {"runtimeRef": runtimes.reference_to("plain"), "suspend": True}
        metadata = {"namespace": "default", "name": "job"}
        job = (await sim.client().create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))).to_dict()
        last: Document = job
        for kind, owner, parts in CHAIN:
            owners = controlled_by(last, owner.gvk.api_version, owner.gvk.kind) if is_own else []
            metadata = {"namespace": "default", "name": "part"}
            whole = {"metadata": {**metadata, "ownerReferences": owners}, "spec": parts}
            last = (await sim.client().create(kind.from_dict(whole))).to_dict()
        await trainers.report(last, job, random.Random(1))

    gates = {features.TRAIN_JOB_STATUS: True}
    assert failure_of(lambda sim: clusters.append(world(sim, gates=gates)), send) == text


def test_a_report_that_another_writer_removes_is_noticed() -> None:
    def prepare(sim: Simulation) -> None:
        serve_kinds(sim)
        Trainers(sim)

    async def remove(sim: Simulation) -> None:
        spec = {"runtimeRef": runtimes.reference_to("plain")}
        job = TrainJob.from_dict({"metadata": {"namespace": "default", "name": "job"}, "spec": spec})
        document = (await sim.client().create(job)).to_dict()
        for status in ({"trainerStatus": {"progressPercentage": 1}}, {}):
            stored = await sim.client().status.update(TrainJob.from_dict({**document, "status": status}))
            document = stored.to_dict()

    assert failure_of(prepare, remove) == "a report was removed: job"
