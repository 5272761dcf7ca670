# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.client import interceptor
from controller_runtime.event import CreateEvent
from controller_runtime.machinery.meta import format_time
from controller_runtime.metrics import REGISTRY
from controller_runtime.reconcile import Request, Result

from pkg import metrics
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller.children import JobSetState
from pkg.controller.trainjob_controller import TrainJobState
from testkit.trainjobs import KEY, START, ReconcilerWorld, built_world, ended_condition, train_job, world


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"kubeflow_trainer_{name}", labels) or 0


async def test_a_new_train_job_gets_its_job_set_with_one_look_before_and_no_condition() -> None:
    w = await world()
    assert await w.writes() == ["apply JobSet"]
    looks = [call for call in w.server.calls if call.kind == JobSet.gvk]
    assert [call.verb for call in looks] == ["get", "apply", "get"]  # the last one is for the status
    assert looks[1].options == {"field_owner": "trainer", "force": True}
    assert await w.conditions() == {}
    assert w.result == Result()
    assert await w.writes() == []
    await w.restart()
    assert await w.writes() == []


async def test_a_deleted_job_set_comes_back_and_only_that_is_counted_as_drift() -> None:
    def counts() -> tuple[float, float]:
        return sample("trainjob_time_to_children_seconds_count"), sample("drift_healed_total", kind="JobSet")

    created, healed = counts()
    w = await built_world()
    assert counts() == (created + 1, healed)
    await w.server.delete(await w.server.get(JobSet, KEY))
    assert await w.writes() == ["apply JobSet"]
    assert counts() == (created + 1, healed + 1)


@pytest.mark.parametrize("end", ["deleted", "finished", "of another controller"])
async def test_nothing_is_remembered_of_a_train_job_that_needs_no_children(end: str) -> None:
    w = await built_world()
    assert w.reconciler._memories
    job = await w.server.get(TrainJob, KEY)
    if end == "deleted":
        await w.server.delete(job)
    elif end == "finished":
        job.status = job.status.from_dict(ended_condition("Failed"))
        await w.server.status.update(job)
    else:
        job.spec.managed_by = "kueue.x-k8s.io/multikueue"
        await w.server.update(job)
    await w.reconcile()
    assert not w.reconciler._memories


async def test_each_count_of_the_jobs_is_copied_to_its_own_field() -> None:
    w = await built_world()
    counts = {"ready": 1, "succeeded": 2, "failed": 3, "active": 4, "suspended": 5}
    await w.server.observe(**counts)
    await w.reconcile()
    (found,) = list((await w.server.get(TrainJob, KEY)).status.jobs_status or [])
    assert found.to_dict() == {"name": "node", **counts}


async def test_drift_is_healed_in_one_reconcile() -> None:
    w = await built_world()
    job_set = await w.server.get(JobSet, KEY)
    job_set.spec.suspend = True
    await w.server.update(job_set, field_owner="somebody")
    assert await w.writes() == ["apply JobSet"]
    assert (await w.job_set())["spec"]["suspend"] is False
    assert await w.writes() == []


async def test_what_a_lost_job_set_leaves_of_the_status_is_one_that_the_server_takes() -> None:
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    w = await world(status={"jobsStatus": [{"name": "node", **counts, "active": 1}]})
    assert await w.writes() == ["apply JobSet", "patch TrainJob/status"]
    assert "status" not in (await w.server.get(TrainJob, KEY)).to_dict()
    assert await w.writes() == []


async def test_a_job_set_that_is_being_deleted_is_left_to_go() -> None:
    w = await built_world()
    job_set = await w.server.get(JobSet, KEY)
    job_set.metadata.finalizers = ["a.b/c"]
    await w.server.delete(await w.server.update(job_set))
    await w.edit_image()
    assert await w.writes() == []


def pool(name: str) -> list[dict[str, Any]]:
    return [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"pool": name}}}]


async def test_scheduling_dropped_while_the_manager_was_away_is_dropped_from_the_job_set() -> None:
    w = await built_world(suspend=True, podTemplateOverrides=pool("old"))
    await w.replace_overrides([])
    await w.restart()
    assert await w.reconcile() == ["apply JobSet"]
    assert "nodeSelector" not in await w.pod()
    assert await w.writes() == []


async def test_suspending_and_resuming_are_told_and_nothing_else_is() -> None:
    w = await world(suspend=True)
    assert await w.writes() == ["apply JobSet", "patch TrainJob/status"]
    (written,) = (each for each in w.server.writes[-1].body if each["op"] != "test")
    assert (written["op"], written["path"]) == ("add", "/status")
    suspended = {"type": "Suspended", "status": "True", "reason": "Suspended"}
    suspended |= {"message": "TrainJob is suspended", "lastTransitionTime": "2025-03-04T05:06:07Z"}
    assert written["value"] == {"conditions": [suspended]}
    await w.suspend(False)
    await w.reconcile()
    assert await w.conditions() == {"Suspended": ("False", "Resumed")}
    assert await w.writes() == []


@pytest.mark.parametrize(("verdict", "condition"), [("Completed", "Complete"), ("Failed", "Failed")])
async def test_a_finished_job_is_left_alone(verdict: str, condition: str) -> None:
    w = await built_world()
    await w.finish(verdict)
    assert await w.writes() == ["patch TrainJob/status"]
    assert await w.conditions() == {condition: ("True", "R")}
    # When the JobSet is deleted, for example by its TTL, it is not created again and the condition stays.
    await w.server.delete(await w.server.get(JobSet, KEY))
    assert await w.writes() == []
    await w.restart()
    assert await w.writes() == []
    assert await w.conditions() == {condition: ("True", "R")}


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "example.com/other"])
async def test_a_job_that_somebody_else_manages_is_not_touched(manager: str) -> None:
    w = await world(managedBy=manager, suspend=True)
    before = len(w.server.calls)
    assert await w.writes() == []
    assert [call.kind for call in w.server.calls[before:]] == [TrainJob.gvk]


async def test_a_job_that_names_us_is_ours() -> None:
    w = await world(managedBy="trainer.kubeflow.org/trainjob-controller")
    assert await w.writes() == ["apply JobSet"]


async def test_a_job_that_is_being_deleted_and_one_that_is_gone_are_ignored() -> None:
    deleted = {"finalizers": ["a.b/c"], "deletionTimestamp": "2025-01-01T00:00:00Z"}
    w = await world(suspend=True, metadata=deleted)
    assert await w.writes() == []
    assert await w.writes(Request("ns", "gone")) == []


async def test_an_unregistered_runtime_is_a_verdict_that_clears_when_the_spec_changes() -> None:
    w = await world(runtimeRef={"apiGroup": "example.com", "kind": "Foo", "name": "f"})
    assert await w.writes() == ["patch TrainJob/status"]
    assert await w.conditions() == {"Failed": ("True", "TrainingRuntimeNotSupported")}
    (condition,) = (await w.server.get(TrainJob, KEY)).status.conditions or []
    assert condition.message == "unsupported runtime: Foo.example.com"
    assert await w.writes() == []
    await w.train_job(lambda job: setattr(job.spec, "runtime_ref", train_job().spec.runtime_ref))
    assert "apply JobSet" in await w.reconcile()
    assert await w.conditions() == {}


async def test_without_job_sets_the_failure_is_told_and_finished_jobs_are_content() -> None:
    async def get(inner: Any, kind: Any, key: Any) -> Any:
        if kind is JobSet:
            raise CacheDegradedError(JobSet.gvk, "no such CRD")
        return await inner.get(kind, key)

    w = await world(suspend=True)
    await w.restart(interceptor.Funcs(get=get))
    with pytest.raises(ExceptionGroup) as caught:
        await w.reconcile()
    assert str(caught.value).count("no such CRD") == 1
    assert "no such CRD" in w.recorder.events[0]
    assert await w.conditions() == {"Suspended": ("True", "Suspended")}
    w.server.add(train_job("done", status=ended_condition()))
    assert await w.writes(Request("ns", "done")) == []


async def test_a_job_that_cannot_be_decoded_gets_an_event() -> None:
    async def refuse(_inner: Any, kind: Any, key: Any) -> Any:
        raise UndecodableObjectError(kind.gvk, key, "430003 objects and lists, at most 30000", uid="u1")

    w: ReconcilerWorld = await world()
    await w.restart(interceptor.Funcs(get=refuse))
    with pytest.raises(UndecodableObjectError):
        await w.reconcile()
    (event,) = w.recorder.events
    assert event.startswith("Warning TrainJobResourcesCreationFailed: ")
    assert event.endswith("ns/job: 430003 objects and lists, at most 30000")
    assert w.server.writes == []


@pytest.mark.parametrize(("listed", "expected"), [(False, 0.03), (True, 0.73)])
async def test_the_time_counts_from_the_event_or_of_an_older_train_job_from_its_creation(
    monkeypatch: pytest.MonkeyPatch, *, listed: bool, expected: float
) -> None:
    w = await world(metadata={"creationTimestamp": format_time(START)})
    w.now = START + timedelta(milliseconds=700)  # the text of the creation has whole seconds only
    job = await w.server.get(TrainJob, KEY)
    assert w.reconciler.arrives(CreateEvent(job, is_in_initial_list=listed))
    w.now += timedelta(milliseconds=30)
    observed: list[float] = []  # the histogram's sum over all tests would be too large to see the difference
    monkeypatch.setattr(metrics.TIME_TO_CHILDREN, "observe", observed.append)
    await w.reconcile()
    assert observed == [pytest.approx(expected)]


def test_the_architecture_page_has_every_state() -> None:
    page = (Path(__file__).parents[3] / "docs/dev/architecture.md").read_text()
    section = page[page.index("## The life of a TrainJob") : page.index("## From a pod")]
    rows = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert rows == [*map(str, TrainJobState), *map(str, JobSetState)]
