# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The event about a TrainJob that has not started in time, with the real reconciler and a recorder of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod, ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import CacheDegradedError
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.meta import format_time
from controller_runtime.reconcile import Request
from controller_runtime.recorder import Broadcaster

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL, PodGroup
from pkg.apis.scheduling.v1beta1 import PodGroup as NativeGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, Trainer, TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoGroup
from pkg.controller.reports import Starts
from pkg.controller.trainjob_controller import TrainJobReconciler
from pkg.runtime import core
from testkit.builders import make_cluster_training_runtime, make_train_job, make_training_runtime_spec

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("team-a", "job")
UNSCHEDULABLE = {
    "type": "Unschedulable",
    "status": "True",
    "reason": "NotEnoughResources",
    "message": "2/2 tasks in gang unschedulable: pod group is not ready",
}
INCOMPLETE = {
    "type": "PodGroupInitiallyScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "minCount (12) cannot be satisfied: 4 scheduled, 7 remaining",
}


def now() -> datetime:
    return BEGIN + timedelta(seconds=anyio.current_time() - 1000)


class World:
    """A TrainJob, its controller and the runnable under test; each method that changes an object also reconciles."""

    def __init__(
        self,
        *,
        policy: dict[str, Any] | None = None,
        ml_policy: dict[str, Any] | None = None,
        after: float = 60,
        pods: FakeClient | None = None,
        **spec: Any,
    ) -> None:
        job = make_train_job(*KEY, **spec)
        job.metadata.creation_timestamp = format_time(BEGIN)
        stored = {key: value for key, value in job.to_dict().items() if key != "status"}
        runtime = make_cluster_training_runtime("runtime", make_training_runtime_spec())
        if policy or ml_policy:
            data = runtime.to_dict()
            data["spec"] |= {"podGroupPolicy": policy} if policy else {"mlPolicy": ml_policy}
            runtime = type(runtime).from_dict(data)
        self.client = FakeClient(TrainJob.from_dict(stored), runtime, now=now)
        self.events = FakeClient(now=now)
        self.after = after
        self.pods = pods

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Run the controller and the runnable as the leader does; a second call is another replica that leads."""
        broadcaster = Broadcaster(self.events, now=now)
        recorder = broadcaster.recorder_for("trainer-trainjob-controller")
        runtimes = await core.new(self.client, FakeClient())
        starts = Starts(
            self.client, recorder, self.after, runtimes=runtimes, pods=self.pods, events=self.events, now=now
        )
        self.reconciler = TrainJobReconciler(self.client, recorder, runtimes, now=now, starts=starts)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broadcaster.start)
            tasks.start_soon(starts.start)
            await self.reconcile()
            yield
            tasks.cancel_scope.cancel()

    async def reconcile(self) -> None:
        await self.reconciler.reconcile(Request(*KEY))
        await anyio.wait_all_tasks_blocked()

    async def status(self, kind: type[Object], **status: Any) -> None:
        found = await self.client.get(kind, KEY)
        found.set_unchecked("status", type(getattr(found, "status")).from_dict(status))  # noqa: B009
        await self.client.status.update(found)
        await self.reconcile()

    async def counts(self, **counts: int) -> None:
        await self.status(JobSet, replicatedJobsStatus=[{"name": "node", **counts}])

    async def suspend(self, *, suspended: bool) -> None:
        job = await self.client.get(TrainJob, KEY)
        job.spec.suspend = suspended
        await self.client.update(job)
        await self.reconcile()

    async def found(self) -> list[str]:
        await anyio.wait_all_tasks_blocked()
        return [
            each.message or ""
            for each in await self.events.list(Event)
            if each.reason == "TrainJobNotStarted"
        ]

    def requests(self) -> int:
        return len([call for call in self.events.calls if call.is_write])


async def test_a_train_job_whose_job_set_has_no_status_is_reported_once_after_its_time() -> None:
    world = World()
    async with world.leading():
        await anyio.sleep(59)
        assert await world.found() == []
        await anyio.sleep(2)
        (found,) = await world.found()
        summary, _, rest = found.partition(". ")
        assert summary == "TrainJob has not started for 60s: the controller of JobSet has created no Jobs"
        assert rest == "To see more: trainerctl why job -n team-a"
        for _ in range(20):
            await anyio.sleep(600)
            await world.reconcile()
        assert world.requests() == 1


async def test_a_pod_template_that_the_api_server_refuses_is_named() -> None:
    resources = ResourceRequirements(requests={"nvidia.com/gpu": "1"})
    world = World(trainer=Trainer(resources_per_node=resources))
    async with world.leading():
        await anyio.sleep(61)
        (found,) = await world.found()
        assert "the API server will refuse the Jobs of node: " in found
        assert "containers[0].resources.limits[nvidia.com/gpu]" in found


async def told(world: World, reason: str, about: dict[str, str], message: str, *, at: int = 20) -> None:
    """Create the Warning event of another controller in the TrainJob's namespace, ``at`` seconds after the begin."""
    when = format_time(BEGIN + timedelta(seconds=at))
    metadata = {"namespace": "team-a", "name": f"{about['name']}.{reason}.{at}", "creationTimestamp": when}
    about = {"namespace": "team-a", **about}
    data = {"metadata": metadata, "involvedObject": about, "reason": reason, "message": message}
    world.events.add(Event.from_dict({**data, "type": "Warning", "lastTimestamp": when}))


INVALID = 'Job.batch "job-node-0" is invalid: spec.template.spec.containers[0].image: Required value'
QUOTA = (
    'Error creating: pods "job-node-0-0-x" is forbidden: exceeded quota: gpus, '
    "requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=8"
)


async def test_the_event_of_job_set_about_a_refused_job_is_quoted() -> None:
    world = World()
    async with world.leading():
        job_set = await world.client.get(JobSet, KEY)
        about = {"kind": "JobSet", "name": "job", "uid": job_set.metadata.uid or ""}
        await told(
            world, "JobCreationFailed", {**about, "uid": "of another JobSet"}, "another refusal", at=15
        )
        await told(world, "JobCreationFailed", about, INVALID)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert INVALID in found


async def test_the_event_about_refused_pods_of_a_job_is_quoted() -> None:
    world = World()
    async with world.leading():
        await world.counts(active=0)
        job = {"kind": "Job", "name": "job-node-0", "uid": "u"}
        await told(world, "FailedCreate", {**job, "name": "job-node-0-of-another"}, "another refusal")
        await told(world, "FailedCreate", job, "of an earlier Job of this name", at=-600)
        await told(world, "FailedCreate", job, QUOTA)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert "the ResourceQuota gpus is exceeded" in found
    assert "another refusal" not in found


async def test_events_are_read_only_for_a_reported_train_job_that_lacks_jobs_or_pods() -> None:
    world = World()
    async with world.leading():
        await world.counts(active=1)
        await anyio.sleep(62)
        assert len(await world.found()) == 1
    assert not [call for call in world.events.calls if call.verb == "watch"]


async def test_reports_about_many_train_jobs_do_not_wait_for_the_events_of_each() -> None:
    world = World()
    broadcaster = Broadcaster(world.events, now=now)
    starts = Starts(world.client, broadcaster.recorder_for("x"), 60, events=world.events, now=now)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broadcaster.start)
        tasks.start_soon(starts.start)
        for number in range(200):
            metadata = {"namespace": "team-a", "name": f"job-{number}", "uid": f"uid-{number}"}
            made = TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": {"name": "runtime"}}})
            world.client.add(made)
            world.client.add(
                JobSet.from_dict({"metadata": {**metadata, "creationTimestamp": format_time(BEGIN)}})
            )
            starts.observe(made)
        await anyio.sleep(60 + 15)
        assert len({each.involved_object.name for each in await world.events.list(Event)}) == 200  # type: ignore[union-attr]
        tasks.cancel_scope.cancel()


async def test_a_manager_that_may_not_watch_events_reports_the_numbers() -> None:
    world = World()

    def refused(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("events is forbidden", code=403, reason="Forbidden")

    world.events.watch = refused  # type: ignore[method-assign]
    async with world.leading():
        await world.counts(active=0)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert "the Jobs of step node have no pods" in found


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"active": 1}, "the pods of step node are not ready (0 of 1 Jobs)"),
        ({"active": 0}, "the Jobs of step node have no pods"),
        ({"suspended": 1}, "the Jobs of step node are suspended"),
    ],
)
async def test_the_counts_of_the_job_set_name_the_cause(counts: dict[str, int], words: str) -> None:
    world = World()
    async with world.leading():
        await world.counts(**counts)
        await anyio.sleep(63)  # the events of Jobs are awaited for up to two seconds
        (found,) = await world.found()
    assert words in found


@pytest.mark.parametrize(
    ("policy", "kind", "status", "words"),
    [
        ({"volcano": {}}, VolcanoGroup, {"conditions": [UNSCHEDULABLE]}, "2/2 tasks in gang unschedulable"),
        ({"workload": {}}, NativeGroup, {"conditions": [INCOMPLETE]}, "minCount (12) cannot be satisfied"),
        ({"coscheduling": {}}, PodGroup, {"phase": "Pending"}, "waits for its scheduler"),
    ],
)
async def test_the_pod_group_names_the_cause(
    policy: dict[str, Any], kind: type[Object], status: dict[str, Any], words: str
) -> None:
    world = World(policy=policy)
    async with world.leading():
        await world.counts(active=1)
        await world.status(kind, **status)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert words in found


async def test_the_event_is_one_line_whatever_the_scheduler_says() -> None:
    world = World(policy={"volcano": {}})
    async with world.leading():
        await world.counts(active=1)
        said = UNSCHEDULABLE | {"message": "0/2\nWarning  Forged\u2028\u200b\x1b[2J"}
        await world.status(VolcanoGroup, conditions=[said])
        await anyio.sleep(61)
        (found,) = await world.found()
    assert found.isprintable()
    assert r"\u200b\x1b[2J" in found


def waiting(reason: str, message: str = "", *, restarts: int = 0, ended: int | None = None) -> dict[str, Any]:
    """Return the status of a container that waits."""
    status: dict[str, Any] = {"name": "node", "image": "busybox", "imageID": "", "ready": False}
    status |= {"restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}}
    if ended is not None:
        end = {"exitCode": ended, "reason": "Error", "finishedAt": format_time(BEGIN + timedelta(seconds=50))}
        status["lastState"] = {"terminated": end}
    return status


def running() -> dict[str, Any]:
    """Return the status of a container that runs and is not ready."""
    state = {"running": {"startedAt": format_time(BEGIN)}}
    return {"name": "node", "image": "busybox", "imageID": "", "ready": False, "state": state}


PLACED = {"type": "PodScheduled", "status": "True"}
UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(
            {"containerStatuses": [waiting("CrashLoopBackOff", restarts=3, ended=1)]},
            "the container node fails again and again with exit code 1, restarted 3 times",
            id="crash loop",
        ),
        pytest.param(
            {"initContainerStatuses": [waiting("CrashLoopBackOff", restarts=1, ended=2)]},
            "the init container node fails again and again with exit code 2, restarted once",
            id="init container",
        ),
        pytest.param(
            {"containerStatuses": [waiting("ImagePullBackOff", "manifest unknown")]},
            "the image busybox does not exist",
            id="image",
        ),
        pytest.param(
            {"containerStatuses": [waiting("CreateContainerConfigError", 'secret "token" not found')]},
            "the Secret token does not exist",
            id="missing Secret",
        ),
        pytest.param({"conditions": [UNPLACED]}, "nvidia.com/gpu", id="unschedulable"),
        pytest.param(
            {"conditions": [PLACED], "initContainerStatuses": [running()]},
            "init container node of Pod job-node-0-0-abcde has run for 60s",
            id="init container that runs",
        ),
        pytest.param(
            {"conditions": [PLACED], "containerStatuses": [waiting("ContainerCreating")]},
            "container node waits: ContainerCreating",
            id="container that is created",
        ),
        pytest.param(
            {"containerStatuses": [running() | {"started": False}]},
            "container node of Pod job-node-0-0-abcde has run for 60s",
            id="probe that fails",
        ),
    ],
)
async def test_a_manager_that_may_list_pods_names_what_is_wrong_with_them(
    status: dict[str, Any], words: str
) -> None:
    pods = FakeClient(now=now)
    world = World(pods=pods)
    async with world.leading():
        await world.counts(active=1)
        job_set = await world.client.get(JobSet, KEY)
        labels = {"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        labels["jobset.sigs.k8s.io/jobset-uid"] = job_set.metadata.uid or ""
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "job-node-0",
            "uid": "u",
            "controller": True,
        }
        metadata = {
            "name": "job-node-0-0-abcde",
            "namespace": "team-a",
            "labels": labels,
            "ownerReferences": [owner],
        }
        # JobSet gives its pods a subdomain. The manager does not read the Service of that name.
        spec: dict[str, Any] = {"containers": [{"name": "node", "image": "busybox"}], "subdomain": "job"}
        if UNPLACED not in status.get("conditions", ()):
            spec["nodeName"] = "node-1"
        await pods.create(Pod.from_dict({"metadata": metadata, "spec": spec}))
        stranger = {**metadata, "name": "stranger", "labels": {"jobset.sigs.k8s.io/jobset-name": "another"}}
        await pods.create(Pod.from_dict({"metadata": stranger, "spec": spec}))
        stored = await pods.get(Pod, ("team-a", "job-node-0-0-abcde"))
        phase = "Pending" if "conditions" in status else "Running"
        stored.set_unchecked("status", type(stored.status).from_dict({"phase": phase, **status}))
        await pods.status.update(stored)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert words in found
    assert "not ready" not in found


async def test_if_pods_cannot_be_listed_the_counts_name_the_cause() -> None:
    class Refusing(FakeClient):
        async def list(self, *_: Any, **__: Any) -> Any:
            raise ForbiddenError("pods is forbidden", code=403, reason="Forbidden")

    world = World(pods=Refusing(now=now))
    async with world.leading():
        await world.counts(active=1)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert "the pods of step node are not ready (0 of 1 Jobs)" in found


def unreadable(world: World, kind: type[Object]) -> None:
    """Make reads of a kind fail, as if the API server did not serve it or did not permit reading it."""
    get = world.client.get

    async def degraded(wanted: Any, key: Any) -> Any:
        if wanted is kind:
            raise CacheDegradedError(kind.gvk, "not served")
        return await get(wanted, key)

    world.client.get = degraded  # type: ignore[method-assign, assignment]


async def test_pods_that_name_the_group_of_a_scheduler_that_is_not_installed_hide_no_report() -> None:
    world = World()
    runtime = await world.client.get(ClusterTrainingRuntime, ("", "runtime"))
    (job,) = runtime.spec.template.spec.replicated_jobs or []
    job.template.spec.template.metadata = ObjectMeta(labels={POD_GROUP_LABEL: "mine"})
    await world.client.update(runtime)
    unreadable(world, PodGroup)
    async with world.leading():
        await world.counts(active=1)
        await anyio.sleep(61)
        (found,) = await world.found()
    assert "the pods of step node are not ready" in found


async def test_a_report_whose_reads_fail_is_tried_again() -> None:
    world = World()
    async with world.leading():
        get = world.client.get
        unreadable(world, JobSet)
        await anyio.sleep(61)
        assert await world.found() == []
        world.client.get = get  # type: ignore[method-assign]
        await anyio.sleep(60)
        assert len(await world.found()) == 1


async def test_a_train_job_that_waits_for_the_job_set_of_an_earlier_one_names_it() -> None:
    world = World()
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "job",
        "uid": "earlier",
    }
    metadata = {"namespace": "team-a", "name": "job", "finalizers": ["example.com/backup"]}
    earlier = JobSet.from_dict({"metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]}})
    world.client.add(earlier)
    await world.client.delete(earlier)

    async with world.leading():
        await anyio.sleep(61)
        (found,) = await world.found()

    assert "the JobSet job of an earlier TrainJob must be deleted first" in found


@pytest.mark.parametrize(
    ("policies", "kind", "name", "words"),
    [
        ({"policy": {"coscheduling": {}}}, PodGroup, "job", "the PodGroup job must be deleted first"),
        ({"ml_policy": {"mpi": {}}}, ConfigMap, "job-mpi-hostfile", "no cause is visible to the manager"),
    ],
)
async def test_a_train_job_whose_child_is_being_deleted_is_not_said_to_be_ignored(
    policies: dict[str, Any], kind: type[Object], name: str, words: str
) -> None:
    world = World(**policies, suspend=True)
    async with world.leading():
        child = await world.client.get(kind, ("team-a", name))
        child.metadata.finalizers = ["example.com/backup"]
        await world.client.update(child)
        await world.client.delete(child)
        await world.suspend(suspended=False)
        assert (await world.client.get(JobSet, KEY)).spec.suspend
        await anyio.sleep(61)
        (found,) = await world.found()

    assert words in found


async def test_another_leader_does_not_repeat_the_report() -> None:
    world = World()
    for _ in range(3):
        async with world.leading():
            await world.counts(active=1)
            await anyio.sleep(100)
    assert len(await world.found()) == 1
    assert (await world.events.list(Event))[0].count == 1
    assert world.requests() == 3


async def test_a_train_job_that_starts_in_time_or_ends_is_not_reported() -> None:
    for counts in ({"ready": 1}, {"succeeded": 1}):
        world = World()
        async with world.leading():
            await anyio.sleep(30)
            await world.counts(**counts)
            await anyio.sleep(30)
            await world.counts(active=1)  # it has started in time, and a later restart does not count
            await anyio.sleep(29)
            assert (await world.found(), world.requests()) == ([], 0)


async def test_a_suspended_train_job_is_not_reported_and_its_time_counts_from_the_resume() -> None:
    world = World(suspend=True)
    async with world.leading():
        await anyio.sleep(600)
        await world.suspend(suspended=False)
        await anyio.sleep(59)
        assert await world.found() == []
        await anyio.sleep(2)
        assert len(await world.found()) == 1


@pytest.mark.parametrize("seen", [True, False], ids=["the deletion is seen", "only the successor is seen"])
async def test_a_deleted_train_job_is_not_reported_and_its_successor_has_its_own_time(seen: bool) -> None:
    world = World()
    async with world.leading():
        await anyio.sleep(30)
        job = await world.client.get(TrainJob, KEY)
        await world.client.delete(job)
        if seen:
            await world.reconcile()
        again = TrainJob.from_dict(
            {**job.to_dict(), "metadata": {"namespace": "team-a", "name": "job"}, "status": {}}
        )
        await world.client.create(again)
        await world.client.delete(await world.client.get(JobSet, KEY))
        await world.reconcile()
        await anyio.sleep(59)
        assert await world.found() == []
        await anyio.sleep(2)
        assert len(await world.found()) == 1


async def test_an_error_that_the_controller_reports_itself_is_not_reported_again() -> None:
    world = World()
    broadcaster = Broadcaster(world.events, now=now)
    recorder = broadcaster.recorder_for("trainer-trainjob-controller")
    starts = Starts(world.client, recorder, 60, now=now)
    job = await world.client.get(TrainJob, KEY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broadcaster.start)
        tasks.start_soon(starts.start)
        starts.observe(job, failing=True)
        await anyio.sleep(100)
        assert await world.found() == []
        starts.observe(job)
        await anyio.sleep(61)
        assert len(await world.found()) == 1
        tasks.cancel_scope.cancel()


async def test_many_train_jobs_are_reported_in_order_and_a_started_one_costs_no_request() -> None:
    world = World()
    jobs = [make_train_job("team-a", f"job-{number}") for number in range(50)]
    for number, job in enumerate(jobs):
        job.metadata.uid = f"uid-{number}"
        await world.client.create(job)
    broadcaster = Broadcaster(world.events, now=now)
    starts = Starts(world.client, broadcaster.recorder_for("x"), 60, now=now)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broadcaster.start)
        tasks.start_soon(starts.start)
        for job in jobs:
            starts.observe(job)
            await anyio.sleep(1)
        for job in jobs[::2]:
            starts.forget(job.key)
        before = len(world.client.calls)
        await anyio.sleep(61)
        assert len(await world.found()) >= 25
        assert not [call for call in world.client.calls[before:] if call.is_write]
        tasks.cancel_scope.cancel()
