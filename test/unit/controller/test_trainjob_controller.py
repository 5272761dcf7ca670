# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controller_runtime.apis.machinery.errors import InvalidError, NotFoundError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.client import interceptor
from controller_runtime.client.fake import Call, FakeClient
from controller_runtime.metrics import REGISTRY
from controller_runtime.reconcile import Request, Result

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.controller import TrainJobReconciler
from pkg.util.testing import make_ended_status
from pkg.util.trainjob import ChildConflictError

NOW = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
KEY = Request("ns", "job")
MakeJob = Callable[..., TrainJob]


class Bench:
    """A reconciler over an in-memory server."""

    def __init__(
        self, make_runtime: Callable[..., Any], recorder: Any, *objects: Object, **runtime: Any
    ) -> None:
        self.client = FakeClient(*objects)
        self.recorder = recorder
        self.runtime = make_runtime(client=self.client, **runtime)
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is remembered."""
        runtimes = {"ClusterTrainingRuntime.trainer.kubeflow.org": self.runtime}
        self.reconciler = TrainJobReconciler(self.client, self.recorder, runtimes, now=lambda: NOW)

    async def reconcile(self, key: Request = KEY) -> list[Call]:
        """Reconcile once; return the writes."""
        before = len(self.client.writes)
        self.result = await self.reconciler.reconcile(key)
        return self.client.writes[before:]

    async def train_job(self) -> TrainJob:
        return await self.client.get(TrainJob, KEY)

    async def job_set(self) -> JobSet:
        return await self.client.get(JobSet, KEY)

    async def conditions(self) -> dict[str, tuple[str, str]]:
        job = await self.train_job()
        return {each.type: (each.status, each.reason) for each in job.status.conditions or ()}

    async def finish(self, condition: str) -> None:
        """End the JobSet as the JobSet controller does."""
        job_set = await self.job_set()
        job_set.status = make_ended_status(condition)
        await self.client.status.update(job_set)


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(make_runtime: Callable[..., Any], recorder: Any) -> MakeBench:
    return lambda *objects, **runtime: Bench(make_runtime, recorder, *objects, **runtime)


def kinds(calls: list[Call]) -> list[tuple[str, str]]:
    return [(f"{call.verb}/{call.subresource}".rstrip("/"), call.kind.kind) for call in calls]


async def test_a_new_train_job_gets_its_job_set_and_no_condition(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    (call,) = await b.reconcile()
    assert (call.verb, call.kind) == ("apply", JobSet.gvk)
    assert call.options == {"field_owner": "trainer", "force": True}
    assert await b.conditions() == {}
    assert b.result == Result()


async def test_what_is_known_is_not_sent_again_even_after_a_restart(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    assert await b.reconcile() == []
    b.restart()
    assert await b.reconcile() == []


async def test_healed_drift_and_the_time_to_children_are_counted(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    def sample(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"kubeflow_trainer_{name}", labels) or 0

    started = sample("trainjob_time_to_children_seconds_count"), sample("drift_healed_total", kind="JobSet")
    b = bench(new_train_job())
    await b.reconcile()
    counts = sample("trainjob_time_to_children_seconds_count"), sample("drift_healed_total", kind="JobSet")
    assert counts == (started[0] + 1, started[1])
    await b.client.delete(await b.job_set())
    await b.reconcile()
    counts = sample("trainjob_time_to_children_seconds_count"), sample("drift_healed_total", kind="JobSet")
    assert counts == (started[0] + 1, started[1] + 1)


async def test_a_status_of_the_job_set_is_no_reason_to_apply_it(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    job_set = await b.job_set()
    job_set.status = job_set.status.from_dict({"restarts": 1})
    await b.client.status.update(job_set)
    assert await b.reconcile() == []


async def test_drift_is_healed_in_one_reconcile(bench: MakeBench, new_train_job: MakeJob) -> None:
    b = bench(new_train_job(suspend=False))
    await b.reconcile()
    job_set = await b.job_set()
    job_set.spec.suspend = True
    await b.client.update(job_set, field_owner="somebody")
    assert kinds(await b.reconcile()) == [("apply", "JobSet")]
    assert (await b.job_set()).spec.suspend is False
    assert await b.reconcile() == []


async def test_a_job_set_that_was_removed_comes_back_while_the_job_runs(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    await b.client.delete(await b.job_set())
    assert kinds(await b.reconcile()) == [("apply", "JobSet")]


async def test_what_a_lost_job_set_leaves_of_the_status_is_one_that_the_server_takes(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    job = new_train_job()
    job.status = job.status.from_dict({"jobsStatus": [{"name": "node", "active": 1}]})
    b = bench(job)

    async def nothing_yet(train_job: TrainJob) -> TrainJobStatus:
        del train_job
        return TrainJobStatus()

    b.runtime.train_job_status = nothing_yet
    assert kinds(await b.reconcile()) == [("apply", "JobSet"), ("patch/status", "TrainJob")]
    assert "status" not in (await b.train_job()).to_dict()
    assert await b.reconcile() == []


async def test_a_job_set_that_is_being_deleted_is_left_to_go(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    job_set = await b.job_set()
    job_set.metadata.finalizers = ["a.b/c"]
    await b.client.delete(await b.client.update(job_set))
    b.runtime.image = "two"
    assert await b.reconcile() == []


async def test_resuming_takes_over_what_a_queue_chose_meanwhile(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(
        new_train_job(suspend=True), pod={"nodeSelector": {"pool": "old"}, "tolerations": [{"key": "a"}]}
    )
    await b.reconcile()
    assert (await b.job_set()).spec.suspend is True
    b.runtime.pod = {"nodeSelector": {"pool": "new"}}
    job = await b.train_job()
    job.spec.suspend = False
    await b.client.update(job)
    assert kinds(await b.reconcile()) == [("apply", "JobSet"), ("patch/status", "TrainJob")]
    job_set = await b.job_set()
    assert job_set.spec.suspend is False
    pod = job_set.to_dict()["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod == {"containers": [{"name": "node", "image": "one"}], "nodeSelector": {"pool": "new"}}
    assert await b.reconcile() == []


async def test_scheduling_dropped_while_the_manager_was_away_is_dropped_from_the_job_set(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True), pod={"nodeSelector": {"pool": "old"}})
    await b.reconcile()
    b.runtime.pod = {}
    b.restart()
    assert kinds(await b.reconcile()) == [("apply", "JobSet")]
    assert "nodeSelector" not in str((await b.job_set()).to_dict())
    assert await b.reconcile() == []


async def test_suspending_and_resuming_are_told_and_nothing_else_is(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    calls = await b.reconcile()
    assert kinds(calls) == [("apply", "JobSet"), ("patch/status", "TrainJob")]
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}
    (written,) = (each for each in calls[-1].body if each["op"] != "test")
    assert (written["op"], written["path"]) == ("add", "/status")
    assert written["value"] == {
        "conditions": [
            {
                "type": "Suspended",
                "status": "True",
                "reason": "Suspended",
                "message": "TrainJob is suspended",
                "lastTransitionTime": "2025-03-04T05:06:07Z",
            }
        ]
    }
    job = await b.train_job()
    job.spec.suspend = False
    await b.client.update(job)
    await b.reconcile()
    assert await b.conditions() == {"Suspended": ("False", "Resumed")}
    assert await b.reconcile() == []


@pytest.mark.parametrize(("verdict", "condition"), [("Completed", "Complete"), ("Failed", "Failed")])
async def test_a_finished_job_is_left_alone(
    bench: MakeBench, new_train_job: MakeJob, verdict: str, condition: str
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    asked = b.runtime.asked
    await b.finish(verdict)
    # Nothing is rendered to write the status.
    assert kinds(await b.reconcile()) == [("patch/status", "TrainJob")]
    assert await b.conditions() == {condition: ("True", "R")}
    # The JobSet goes, by its TTL, say; neither it nor another verdict comes back.
    await b.client.delete(await b.job_set())
    assert await b.reconcile() == []
    b.restart()
    assert await b.reconcile() == []
    assert b.runtime.asked == asked
    assert await b.conditions() == {condition: ("True", "R")}


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "example.com/other"])
async def test_a_job_that_somebody_else_manages_is_not_touched(
    bench: MakeBench, new_train_job: MakeJob, manager: str
) -> None:
    b = bench(new_train_job(managedBy=manager, suspend=True))
    assert await b.reconcile() == []
    assert b.runtime.asked == 0


async def test_a_job_that_names_us_is_ours(bench: MakeBench, new_train_job: MakeJob) -> None:
    b = bench(new_train_job(managedBy="trainer.kubeflow.org/trainjob-controller"))
    assert kinds(await b.reconcile()) == [("apply", "JobSet")]


async def test_a_job_that_is_being_deleted_and_one_that_is_gone_are_ignored(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    job = new_train_job(suspend=True)
    job.metadata.finalizers = ["a.b/c"]
    job.metadata.deletion_timestamp = "2025-01-01T00:00:00Z"
    b = bench(job)
    assert await b.reconcile() == []
    assert await b.reconcile(Request("ns", "gone")) == []


async def test_an_unregistered_runtime_is_a_verdict_that_clears_when_the_spec_changes(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    foreign = {"apiGroup": "example.com", "kind": "Foo", "name": "f"}
    b = bench(new_train_job(runtimeRef=foreign))
    assert kinds(await b.reconcile()) == [("patch/status", "TrainJob")]
    assert await b.conditions() == {"Failed": ("True", "TrainingRuntimeNotSupported")}
    message = (await b.train_job()).status.conditions[0].message  # type: ignore[index] # asserted above
    assert message == "unsupported runtime: Foo.example.com"
    assert await b.reconcile() == []
    job = await b.train_job()
    job.spec.runtime_ref = new_train_job().spec.runtime_ref
    await b.client.update(job)
    assert kinds(await b.reconcile()) == [("apply", "JobSet"), ("patch/status", "TrainJob")]
    assert await b.conditions() == {}


async def test_a_failure_is_told_as_an_event_and_raised_and_the_status_is_written_all_the_same(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job(suspend=True), error=InvalidError("x" * 951))
    with pytest.raises(ExceptionGroup) as caught:
        await b.reconcile()
    assert [type(error) for error in caught.value.exceptions] == [InvalidError, NotFoundError]
    (event,) = recorder.events
    assert event == (
        "Warning",
        "TrainJobResourcesCreationFailed",
        "TrainJob resources reconciliation failed: " + "x" * 950 + " ...",
    )
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}


async def test_a_short_error_is_told_whole_and_a_single_one_is_raised_as_it_is(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job())
    await b.reconcile()
    b.runtime.error = ValueError("y" * 950)
    with pytest.raises(ValueError, match=r"^y{950}$"):
        await b.reconcile()
    assert recorder.events[0][2] == "TrainJob resources reconciliation failed: " + "y" * 950


async def test_another_writers_change_of_the_rest_does_not_stop_a_status(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        stored = await b.train_job()
        stored.metadata.labels = {"changed": "meanwhile"}
        await b.client.update(stored)
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}
    assert (await b.train_job()).labels == {"changed": "meanwhile"}


@pytest.mark.parametrize(
    "before", [None, {"type": "Theirs", "status": "False", "reason": "R", "message": "m"}]
)
async def test_a_condition_that_another_writer_adds_meanwhile_is_kept(
    bench: MakeBench, new_train_job: MakeJob, before: dict[str, str] | None
) -> None:
    b = bench(new_train_job(suspend=True, conditions=[before] if before else None))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        stored = await b.train_job()
        theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}
        stored.status = stored.status.from_dict({"conditions": [theirs]})
        await b.client.status.update(stored)
        b.runtime.train_job_status = original
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert b.result.requeue_after
    assert await b.conditions() == {"Theirs": ("True", "R")}
    await b.reconcile()
    assert await b.conditions() == {"Theirs": ("True", "R"), "Suspended": ("True", "Suspended")}


async def test_a_condition_that_another_writer_adds_is_kept_when_the_rest_of_the_status_goes(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    job = new_train_job()
    job.status = TrainJobStatus.from_dict({"jobsStatus": [{"name": "node", "ready": 1}]})
    b = bench(job)

    async def none(_train_job: TrainJob) -> Any:
        stored = await b.train_job()
        if stored.status.conditions is None:
            theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}
            stored.status = TrainJobStatus.from_dict({**stored.status.to_dict(), "conditions": [theirs]})
            await b.client.status.update(stored)
        return TrainJobStatus()

    b.runtime.train_job_status = none
    await b.reconcile()
    assert b.result.requeue_after
    assert await b.conditions() == {"Theirs": ("True", "R")}


async def test_a_status_is_written_again_after_the_kind_was_not_served(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    """A server whose CRD is being replaced answers 404 for objects that it still has."""
    b = bench(new_train_job(suspend=True))
    unserved = NotFoundError("the server could not find the requested resource", code=404, reason="NotFound")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise unserved

    served, b.client = b.client, interceptor.wrap(b.client, interceptor.Funcs(subresource_patch=refuse))  # type: ignore[assignment]
    b.restart()
    with pytest.raises(NotFoundError, match="could not find the requested resource"):
        await b.reconciler.reconcile(KEY)
    b.client = served
    b.restart()
    await b.reconcile()
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}


async def test_a_status_of_a_train_job_that_was_deleted_meanwhile_is_dropped(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        await b.client.delete(await b.train_job())
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()


async def test_a_status_is_not_written_to_another_train_job_of_the_same_name(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    b = bench(new_train_job(suspend=True))
    original = b.runtime.train_job_status

    async def slow(train_job: TrainJob) -> Any:
        await b.client.delete(await b.train_job())
        successor = new_train_job()
        successor.metadata.uid = "uid-of-the-next"
        b.client.add(successor)
        return await original(train_job)

    b.runtime.train_job_status = slow
    await b.reconcile()
    assert await b.conditions() == {}


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
    await b.client.delete(await b.job_set())  # as the garbage collector does
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


async def test_without_job_sets_the_failure_is_told_and_finished_jobs_are_content(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job(suspend=True))
    get = b.client.get

    async def degraded(kind: Any, key: Any) -> Any:
        if kind is JobSet:
            raise CacheDegradedError(JobSet.gvk, "no such CRD")
        return await get(kind, key)

    b.client.get = degraded  # type: ignore[method-assign] # one call of a working client fails
    with pytest.raises(ExceptionGroup) as caught:
        await b.reconcile()
    assert str(caught.value).count("no such CRD") == 1
    assert "no such CRD" in recorder.events[0][2]
    assert await b.conditions() == {"Suspended": ("True", "Suspended")}
    done = new_train_job(
        name="done", conditions=[{"type": "Complete", "status": "True", "reason": "R", "message": "m"}]
    )
    b.client.add(done)
    assert await b.reconcile(Request("ns", "done")) == []


async def test_a_job_that_cannot_be_decoded_gets_an_event(
    bench: MakeBench, new_train_job: MakeJob, recorder: Any
) -> None:
    b = bench(new_train_job())

    async def refuse(kind: Any, key: Any) -> Any:
        raise UndecodableObjectError(kind.gvk, key, "430003 objects and lists, at most 30000", uid="u1")

    b.client.get = refuse  # type: ignore[method-assign] # one call of a working client fails
    with pytest.raises(UndecodableObjectError):
        await b.reconcile()
    ((kind, reason, message),) = recorder.events
    assert (kind, reason) == ("Warning", "TrainJobResourcesCreationFailed")
    assert message.endswith("ns/job: 430003 objects and lists, at most 30000")
    assert b.client.writes == []
