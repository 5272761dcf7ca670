# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The event about a TrainJob that has not started in time, with the real reconciler and a recorder of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Event, Pod
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import MERGE, raw_patch
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.meta import format_time

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL, PodGroup
from pkg.apis.scheduling.v1beta1 import PodGroup as NativeGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup as VolcanoGroup
from pkg.controller.reports import Starts
from pkg.util import trainjob
from testkit.trainjobs import (
    GANG,
    KEY,
    MPI,
    PLAIN,
    START,
    VOLCANO,
    WORKLOAD,
    ReconcilerWorld,
    ended_condition,
    train_job,
    world,
)

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


async def starting(policy: dict[str, Any] = PLAIN, **spec: Any) -> ReconcilerWorld:
    return await world(policy, metadata={"creationTimestamp": format_time(START)}, **spec)


@asynccontextmanager
async def leading(w: ReconcilerWorld, pods: FakeClient | None = None) -> AsyncIterator[None]:
    """Run the report of TrainJobs that have not started after a minute, beside the reconciler."""

    await w.restart()

    def make(recorder: Any) -> Starts:
        runtimes, now = w.runtimes, w.clock
        return Starts(w.server, recorder, 60, runtimes=runtimes, pods=pods, events=w.events, now=now)

    async with w.leading(make) as starts:
        await w.restart(starts=starts, runtimes=w.runtimes)
        await reconcile(w)
        yield


async def reconcile(w: ReconcilerWorld) -> None:
    await w.reconcile()
    await anyio.wait_all_tasks_blocked()


async def counts(w: ReconcilerWorld, **counted: int) -> None:
    await w.server.observe(**counted)
    await reconcile(w)


async def status(w: ReconcilerWorld, kind: type[Object], **status: Any) -> None:
    found = await w.server.get(kind, KEY)
    found.set_unchecked("status", type(getattr(found, "status")).from_dict(status))  # noqa: B009
    await w.server.status.update(found)
    await reconcile(w)


async def reports(w: ReconcilerWorld) -> list[str]:
    await anyio.wait_all_tasks_blocked()
    events = await w.events.list(Event)
    return [each.message or "" for each in events if each.reason == "TrainJobNotStarted"]


async def times_reported(w: ReconcilerWorld) -> int:
    await anyio.wait_all_tasks_blocked()
    return sum(each.count or 1 for each in await w.events.list(Event))


def requests(w: ReconcilerWorld) -> int:
    return len([call for call in w.events.calls if call.is_write])


async def test_a_train_job_whose_job_set_has_no_status_is_reported_once_after_its_time() -> None:
    w = await starting()
    async with leading(w):
        await anyio.sleep(59)
        assert await reports(w) == []
        await anyio.sleep(2)
        (message,) = await reports(w)
        summary, _, rest = message.partition(". ")
        assert summary == "TrainJob has not started for 60s: the controller of JobSet has created no Jobs"
        assert rest == "To see more: trainerctl why job -n ns"
        for _ in range(20):
            await anyio.sleep(600)
            await reconcile(w)
        assert requests(w) == 1


async def test_a_pod_template_that_the_api_server_refuses_is_named() -> None:
    w = await starting(trainer={"resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}}})
    async with leading(w):
        await anyio.sleep(61)
        (message,) = await reports(w)
        assert "the API server will refuse the Jobs of node: " in message
        assert "containers[0].resources.limits[nvidia.com/gpu]" in message


async def told(w: ReconcilerWorld, reason: str, about: dict[str, str], message: str, *, at: int = 20) -> None:
    """Create the Warning event of another controller in the TrainJob's namespace, ``at`` seconds after the begin."""
    when = format_time(START + timedelta(seconds=at))
    metadata = {"namespace": "ns", "name": f"{about['name']}.{reason}.{at}", "creationTimestamp": when}
    about = {"namespace": "ns", **about}
    data = {"metadata": metadata, "involvedObject": about, "reason": reason, "message": message}
    w.events.add(Event.from_dict({**data, "type": "Warning", "lastTimestamp": when}))


INVALID = 'Job.batch "job-node-0" is invalid: spec.template.spec.containers[0].image: Required value'
QUOTA = (
    'Error creating: pods "job-node-0-0-x" is forbidden: exceeded quota: gpus, '
    "requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=8"
)


async def test_the_event_of_job_set_about_a_refused_job_is_quoted() -> None:
    w = await starting()
    async with leading(w):
        job_set = await w.server.get(JobSet, KEY)
        about = {"kind": "JobSet", "name": "job", "uid": job_set.metadata.uid or ""}
        await told(w, "JobCreationFailed", {**about, "uid": "of another JobSet"}, "another refusal", at=15)
        await told(w, "JobCreationFailed", about, INVALID)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert INVALID in message


async def test_the_event_about_refused_pods_of_a_job_is_quoted() -> None:
    w = await starting()
    async with leading(w):
        await counts(w, active=0)
        job = {"kind": "Job", "name": "job-node-0", "uid": "u"}
        await told(w, "FailedCreate", {**job, "name": "job-node-0-of-another"}, "another refusal")
        await told(w, "FailedCreate", job, "of an earlier Job of this name", at=-600)
        await told(w, "FailedCreate", job, QUOTA)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert "the ResourceQuota gpus is exceeded" in message
    assert "another refusal" not in message


async def test_events_are_read_only_for_a_reported_train_job_that_lacks_jobs_or_pods() -> None:
    w = await starting()
    async with leading(w):
        await counts(w, active=1)
        await anyio.sleep(62)
        assert len(await reports(w)) == 1
    assert not [call for call in w.events.calls if call.verb == "watch"]


async def test_reports_about_many_train_jobs_do_not_wait_for_the_events_of_each() -> None:
    w = await starting()
    async with w.leading(
        lambda recorder: Starts(w.server, recorder, 60, events=w.events, now=w.clock)
    ) as starts:
        for number in range(200):
            made = train_job(f"job-{number}")
            w.server.add(made)
            metadata = {"namespace": "ns", "name": made.name, "creationTimestamp": format_time(START)}
            w.server.add(JobSet.from_dict({"metadata": {**metadata, "uid": made.metadata.uid}}))
            starts.observe(made)
        await anyio.sleep(60 + 15)
        names = {each.involved_object and each.involved_object.name for each in await w.events.list(Event)}
        assert len(names) == 200


async def test_a_manager_that_may_not_watch_events_reports_the_numbers() -> None:
    w = await starting()

    def refused(*_: Any, **__: Any) -> Any:
        raise ForbiddenError("events is forbidden", code=403, reason="Forbidden")

    w.events.watch = refused  # type: ignore[method-assign]
    async with leading(w):
        await counts(w, active=0)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert "the Jobs of step node have no pods" in message


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({"active": 1}, "the pods of step node are not ready (0 of 1 Jobs)"),
        ({"active": 0}, "the Jobs of step node have no pods"),
        ({"suspended": 1}, "the Jobs of step node are suspended"),
    ],
)
async def test_the_counts_of_the_job_set_name_the_cause(counted: dict[str, int], words: str) -> None:
    w = await starting()
    async with leading(w):
        await counts(w, **counted)
        await anyio.sleep(63)  # the events of Jobs are awaited for up to two seconds
        (message,) = await reports(w)
    assert words in message


@pytest.mark.parametrize(
    ("policy", "kind", "written", "words"),
    [
        (VOLCANO, VolcanoGroup, {"conditions": [UNSCHEDULABLE]}, "2/2 tasks in gang unschedulable"),
        (WORKLOAD, NativeGroup, {"conditions": [INCOMPLETE]}, "minCount (12) cannot be satisfied"),
        (GANG, PodGroup, {"phase": "Pending"}, "waits for its scheduler"),
    ],
)
async def test_the_pod_group_names_the_cause(
    policy: dict[str, Any], kind: type[Object], written: dict[str, Any], words: str
) -> None:
    w = await starting(policy)
    async with leading(w):
        await counts(w, active=1)
        await status(w, kind, **written)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert words in message


async def test_the_event_is_one_line_whatever_the_scheduler_says() -> None:
    w = await starting(VOLCANO)
    async with leading(w):
        await counts(w, active=1)
        said = UNSCHEDULABLE | {"message": "0/2\nWarning  Forged\u2028\u200b\x1b[2J"}
        await status(w, VolcanoGroup, conditions=[said])
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert message.isprintable()
    assert r"\u200b\x1b[2J" in message


def waiting(reason: str, message: str = "", *, restarts: int = 0, ended: int | None = None) -> dict[str, Any]:
    """Return the status of a container that waits."""
    status: dict[str, Any] = {"name": "node", "image": "busybox", "imageID": "", "ready": False}
    status |= {"restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}}
    if ended is not None:
        end = {"exitCode": ended, "reason": "Error", "finishedAt": format_time(START + timedelta(seconds=50))}
        status["lastState"] = {"terminated": end}
    return status


def running() -> dict[str, Any]:
    """Return the status of a container that runs and is not ready."""
    state = {"running": {"startedAt": format_time(START)}}
    return {"name": "node", "image": "busybox", "imageID": "", "ready": False, "state": state}


PLACED = {"type": "PodScheduled", "status": "True"}
UNPLACED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param(
            {"containerStatuses": [waiting("CrashLoopBackOff", restarts=3, ended=1)]},
            "the container node fails again and again with exit code 1, restarted 3 times",
            id="crash loop",
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
    ],
)
async def test_a_manager_that_may_list_pods_names_what_is_wrong_with_them(
    written: dict[str, Any], words: str
) -> None:
    w = await starting()
    pods = FakeClient(now=w.clock)
    async with leading(w, pods):
        await counts(w, active=1)
        job_set = await w.server.get(JobSet, KEY)
        labels = {"jobset.sigs.k8s.io/jobset-name": "job", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        labels["jobset.sigs.k8s.io/jobset-uid"] = job_set.metadata.uid or ""
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "job-node-0",
            "uid": "u",
            "controller": True,
        }
        metadata = {"namespace": "ns", "labels": labels, "ownerReferences": [owner]}
        metadata["name"] = "job-node-0-0-abcde"
        # JobSet gives its pods a subdomain. The manager does not read the Service of that name.
        spec: dict[str, Any] = {"containers": [{"name": "node", "image": "busybox"}], "subdomain": "job"}
        if UNPLACED not in written.get("conditions", ()):
            spec["nodeName"] = "node-1"
        phase = "Pending" if "conditions" in written else "Running"
        pods.add(Pod.from_dict({"metadata": metadata, "spec": spec, "status": {"phase": phase, **written}}))
        stranger = {**metadata, "name": "stranger", "labels": {"jobset.sigs.k8s.io/jobset-name": "another"}}
        pods.add(Pod.from_dict({"metadata": stranger, "spec": spec}))
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert words in message
    assert "not ready" not in message


async def test_if_pods_cannot_be_listed_the_counts_name_the_cause() -> None:
    class Refusing(FakeClient):
        async def list(self, *_: Any, **__: Any) -> Any:
            raise ForbiddenError("pods is forbidden", code=403, reason="Forbidden")

    w = await starting()
    async with leading(w, Refusing()):
        await counts(w, active=1)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert "the pods of step node are not ready (0 of 1 Jobs)" in message


def unreadable(w: ReconcilerWorld, kind: type[Object]) -> None:
    """Make reads of a kind fail, as if the API server did not serve it or did not permit reading it."""
    get = w.server.get

    async def degraded(wanted: Any, key: Any) -> Any:
        if wanted is kind:
            raise CacheDegradedError(kind.gvk, "not served")
        return await get(wanted, key)

    w.server.get = degraded  # type: ignore[method-assign, assignment]


async def test_pods_that_name_the_group_of_a_scheduler_that_is_not_installed_hide_no_report() -> None:
    w = await starting()
    runtime = await w.server.get(ClusterTrainingRuntime, ("", "rt"))
    (job,) = runtime.spec.template.spec.replicated_jobs or []
    job.template.spec.template.metadata = ObjectMeta(labels={POD_GROUP_LABEL: "mine"})
    await w.server.update(runtime)
    unreadable(w, PodGroup)
    async with leading(w):
        await counts(w, active=1)
        await anyio.sleep(61)
        (message,) = await reports(w)
    assert "the pods of step node are not ready" in message


async def test_a_report_whose_reads_fail_is_tried_again() -> None:
    w = await starting()
    async with leading(w):
        get = w.server.get
        unreadable(w, JobSet)
        await anyio.sleep(61)
        assert await reports(w) == []
        w.server.get = get  # type: ignore[method-assign]
        await anyio.sleep(60)
        assert len(await reports(w)) == 1


async def test_a_train_job_that_waits_for_the_job_set_of_an_earlier_one_names_it() -> None:
    w = await starting()
    earlier = train_job(metadata={"uid": "earlier"})
    held = JobSet.from_dict(
        {"metadata": {"namespace": "ns", "name": "job", "finalizers": ["example.com/backup"]}}
    )
    held.metadata.owner_references = [trainjob.controller_reference(earlier)]
    w.server.add(held)
    await w.server.delete(held)

    async with leading(w):
        await anyio.sleep(61)
        (message,) = await reports(w)

    assert "the JobSet job of an earlier TrainJob must be deleted first" in message


@pytest.mark.parametrize(
    ("policy", "kind", "name", "words"),
    [
        (GANG, PodGroup, "job", "the PodGroup job must be deleted first"),
        (MPI, ConfigMap, "job-mpi-hostfile", "no cause is visible to the manager"),
    ],
)
async def test_a_train_job_whose_child_is_being_deleted_is_not_said_to_be_ignored(
    policy: dict[str, Any], kind: type[Object], name: str, words: str
) -> None:
    w = await starting(policy, suspend=True)
    async with leading(w):
        child = await w.server.get(kind, ("ns", name))
        child.metadata.finalizers = ["example.com/backup"]
        await w.server.update(child)
        await w.server.delete(child)
        await w.suspend(False)
        await reconcile(w)
        assert (await w.server.get(JobSet, KEY)).spec.suspend
        await anyio.sleep(61)
        (message,) = await reports(w)

    assert words in message


async def test_another_leader_does_not_repeat_the_report() -> None:
    w = await starting()
    for _ in range(3):
        async with leading(w):
            await counts(w, active=1)
            await anyio.sleep(100)
    assert len(await reports(w)) == 1
    assert (await w.events.list(Event))[0].count == 1
    assert requests(w) == 3


async def test_a_train_job_that_starts_in_time_or_ends_is_not_reported() -> None:
    for begun in ({"ready": 1}, {"succeeded": 1}):
        w = await starting()
        async with leading(w):
            await anyio.sleep(30)
            await counts(w, **begun)
            await anyio.sleep(30)
            await counts(w, active=1)  # it has started in time, and a later restart does not count
            await anyio.sleep(29)
            assert (await reports(w), requests(w)) == ([], 0)


async def test_a_suspended_train_job_is_not_reported_and_its_time_counts_from_each_resume() -> None:
    w = await starting(suspend=True)
    async with leading(w):
        for resumes in (1, 2):
            await anyio.sleep(600)
            await w.suspend(False)
            await reconcile(w)
            await anyio.sleep(59)
            assert await times_reported(w) == resumes - 1
            await anyio.sleep(2)
            assert await times_reported(w) == resumes
            await w.suspend(True)
            await reconcile(w)


@pytest.mark.parametrize(
    "change",
    [
        {"status": ended_condition("Failed")},
        {"spec": {"suspend": True}},
        {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}},
    ],
)
async def test_a_train_job_that_need_not_start_is_not_reported_before_it_is_reconciled(
    change: dict[str, Any],
) -> None:
    w = await starting()
    async with leading(w):
        writer = w.server.status if "status" in change else w.server
        await writer.patch(await w.server.get(TrainJob, KEY), raw_patch(MERGE, json.dumps(change).encode()))
        await anyio.sleep(61)
        assert await reports(w) == []


@pytest.mark.parametrize("seen", [True, False], ids=["the deletion is seen", "only the successor is seen"])
async def test_a_deleted_train_job_is_not_reported_and_its_successor_has_its_own_time(seen: bool) -> None:
    w = await starting()
    async with leading(w):
        await anyio.sleep(30)
        job = await w.server.get(TrainJob, KEY)
        await w.server.delete(job)
        if seen:
            await reconcile(w)
        again = TrainJob.from_dict(
            {**job.to_dict(), "metadata": {"namespace": "ns", "name": "job"}, "status": {}}
        )
        await w.server.create(again)
        await w.server.delete(await w.server.get(JobSet, KEY))
        await reconcile(w)
        await anyio.sleep(59)
        assert await reports(w) == []
        await anyio.sleep(2)
        assert len(await reports(w)) == 1


async def test_an_error_that_the_controller_reports_itself_is_not_reported_again() -> None:
    w = await starting()
    job = await w.server.get(TrainJob, KEY)
    async with w.leading(lambda recorder: Starts(w.server, recorder, 60, now=w.clock)) as starts:
        starts.observe(job, failing=True)
        await anyio.sleep(100)
        assert await reports(w) == []
        starts.observe(job)
        await anyio.sleep(61)
        assert len(await reports(w)) == 1
