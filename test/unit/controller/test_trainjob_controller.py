# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.event import CreateEvent
from controller_runtime.metrics import REGISTRY
from controller_runtime.reconcile import Request, Result

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob, TrainJobStatus
from pkg.controller.children import JobSetState
from pkg.controller.trainjob_controller import TrainJobState
from testkit.trainjobs import MakeBench, MakeJob, kinds, world


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
    # The status is written without building any object.
    assert kinds(await b.reconcile()) == [("patch/status", "TrainJob")]
    assert await b.conditions() == {condition: ("True", "R")}
    # When the JobSet is deleted, for example by its TTL, it is not created again and the condition stays.
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


async def test_the_arrival_of_a_train_job_that_has_ended_is_forgotten(
    bench: MakeBench, new_train_job: MakeJob
) -> None:
    job = new_train_job(conditions=[{"type": "Complete", "status": "True", "reason": "R", "message": "m"}])
    b = bench(job)
    b.reconciler.arrives(CreateEvent(job))
    await b.reconcile()
    assert len(b.reconciler._memories) == 0


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


def test_the_architecture_page_has_every_state() -> None:
    page = (Path(__file__).parents[3] / "docs/dev/architecture.md").read_text()
    section = page[page.index("## The life of a TrainJob") : page.index("## From a pod")]
    rows = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert rows == [*map(str, TrainJobState), *map(str, JobSetState)]


async def test_a_new_train_job_s_job_set_is_looked_up_once_before_it_is_created() -> None:
    w = await world()
    assert await w.reconcile() == ["apply JobSet"]
    about = [call.verb for call in w.server.calls if call.kind == JobSet.gvk]
    assert about == ["get", "apply", "get"]  # the last one is for the status
