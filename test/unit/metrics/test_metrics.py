# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.metrics import REGISTRY
from prometheus_client import CollectorRegistry

from pkg.apis.trainer.v1alpha1 import RuntimeRef, TrainJob
from pkg.metrics import TRAIN_JOBS_BY_RUNTIME, DegradedKinds, Phase, TrainJobPhases
from pkg.metrics.metrics import MOST_RUNTIMES, phase_of
from testkit.builders import make_train_job

POD_GROUP = GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup")


def train_job(name: str, **conditions: str) -> TrainJob:
    job = make_train_job("ns", name)
    job.status.conditions = [
        Condition(type=kind, status=status, reason="R", message="") for kind, status in conditions.items()
    ]
    return job


def counted() -> dict[str, float]:
    return {
        phase: REGISTRY.get_sample_value("kubeflow_trainer_trainjobs", {"condition": phase}) or 0
        for phase in Phase
    }


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ({}, Phase.RUNNING),
        ({"Suspended": "False"}, Phase.RUNNING),
        ({"Suspended": "True"}, Phase.SUSPENDED),
        ({"Suspended": "False", "Complete": "True"}, Phase.COMPLETE),
        ({"Suspended": "True", "Failed": "True"}, Phase.FAILED),
        ({"SomethingNew": "True"}, Phase.RUNNING),
    ],
)
def test_a_trainjob_is_in_one_phase(conditions: dict[str, str], phase: Phase) -> None:
    assert phase_of(train_job("a", **conditions)) is phase


def test_each_trainjob_is_counted_once_where_it_is_now() -> None:
    before = counted()
    phases = TrainJobPhases()
    phases.observe(train_job("a"))
    phases.observe(train_job("b"))
    phases.observe(train_job("a"))
    phases.observe(train_job("b", Complete="True"))
    change = {phase: counted()[phase] - before[phase] for phase in Phase}
    assert change == {Phase.RUNNING: 1, Phase.COMPLETE: 1, Phase.SUSPENDED: 0, Phase.FAILED: 0}
    for name in ("a", "b", "never-seen"):
        phases.forget(NamespacedName("ns", name))
    assert counted() == before


def of_runtime(kind: str, name: str, job: str, **conditions: str) -> TrainJob:
    made = train_job(job, **conditions)
    made.spec.runtime_ref = RuntimeRef(kind=kind, name=name)
    return made


def by_runtime() -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["kind"], sample.labels["runtime"], sample.labels["condition"]): sample.value
        for sample in next(iter(TRAIN_JOBS_BY_RUNTIME.collect())).samples
        if sample.value
    }


def test_failed_and_suspended_trainjobs_are_counted_by_runtime() -> None:
    before, phases = by_runtime(), TrainJobPhases()
    phases.observe(of_runtime("ClusterTrainingRuntime", "llama", "a", Failed="True"))
    phases.observe(of_runtime("TrainingRuntime", "llama", "b", Suspended="True"))
    phases.observe(of_runtime("TrainingRuntime", "llama", "c"))
    phases.observe(of_runtime("TrainingRuntime", "llama", "c", Suspended="True"))
    phases.observe(of_runtime("Strange", "llama", "d"))
    now = by_runtime()
    assert now.pop(("ClusterTrainingRuntime", "llama", "Failed")) == 1
    assert now.pop(("TrainingRuntime", "llama", "Suspended")) == 2
    assert now.pop(("other", "other", "Running")) == 1
    assert now == before
    for name in "abcd":
        phases.forget(NamespacedName("ns", name))
    assert by_runtime() == before


@pytest.mark.parametrize(("name", "label"), [("observed", "observed"), ("n" * 254, "other")])
def test_a_runtime_has_a_series_for_each_condition_while_it_has_trainjobs(name: str, label: str) -> None:
    def series() -> dict[str, float]:
        (family,) = TRAIN_JOBS_BY_RUNTIME.collect()
        found = [each for each in family.samples if each.labels["runtime"] == label]
        return {
            each.labels["condition"]: each.value
            for each in found
            if each.labels["kind"] == "ClusterTrainingRuntime"
        }

    none, phases = dict.fromkeys(Phase, 0), TrainJobPhases()
    phases.observe(of_runtime("ClusterTrainingRuntime", name, "a", Suspended="True"))
    assert series() == none | {Phase.SUSPENDED: 1}
    phases.observe(of_runtime("ClusterTrainingRuntime", name, "a"))
    assert series() == none | {Phase.RUNNING: 1}
    phases.forget(NamespacedName("ns", "a"))
    assert not series()


def test_a_trainjob_that_changes_its_runtime_is_counted_once() -> None:
    before, phases = by_runtime(), TrainJobPhases()
    phases.observe(of_runtime("TrainingRuntime", "one", "a"))
    phases.observe(of_runtime("TrainingRuntime", "two", "a"))
    assert {key for key in by_runtime() if key not in before} == {("TrainingRuntime", "two", "Running")}
    phases.forget(NamespacedName("ns", "a"))
    assert by_runtime() == before


def test_a_runtime_that_is_used_again_is_counted_again() -> None:
    before, phases = by_runtime(), TrainJobPhases()
    for _ in range(2):
        phases.observe(of_runtime("TrainingRuntime", "one", "a"))
        assert by_runtime() == {**before, ("TrainingRuntime", "one", "Running"): 1}
        phases.forget(NamespacedName("ns", "a"))
    assert by_runtime() == before


def test_names_of_runtimes_make_a_limited_number_of_series() -> None:
    before, phases = by_runtime(), TrainJobPhases()
    for number in range(3 * MOST_RUNTIMES):
        phases.observe(of_runtime("TrainingRuntime", f"tenants-{number}", f"a{number}"))
    phases.observe(of_runtime("TrainingRuntime", "other", "b"))
    phases.observe(of_runtime("ClusterTrainingRuntime", "the-admins", "c"))
    assert len(by_runtime()) - len(before) == MOST_RUNTIMES + 2
    assert by_runtime()["TrainingRuntime", "other", "Running"] == 2 * MOST_RUNTIMES + 1
    assert by_runtime()["ClusterTrainingRuntime", "the-admins", "Running"] == 1
    # A name whose TrainJobs are gone gives up its series, and the next runtime gets one.
    phases.forget(NamespacedName("ns", "a0"))
    phases.observe(of_runtime("TrainingRuntime", "next", "d"))
    assert by_runtime()["TrainingRuntime", "next", "Running"] == 1
    assert ("TrainingRuntime", "tenants-0", "Running") not in by_runtime()
    for name in (*(f"a{number}" for number in range(3 * MOST_RUNTIMES)), "b", "c", "d"):
        phases.forget(NamespacedName("ns", name))
    assert by_runtime() == before


def test_degraded_kinds_are_told_only_while_somebody_has_them() -> None:
    kinds = DegradedKinds()
    registry = CollectorRegistry()
    registry.register(kinds)
    labels = {"group": POD_GROUP.group, "version": POD_GROUP.version, "kind": POD_GROUP.kind}
    problems = {POD_GROUP: "no such kind"}

    def value() -> float | None:
        return registry.get_sample_value("kubeflow_trainer_kind_degraded", labels)

    assert value() is None
    with kinds.of(lambda: problems), kinds.of(lambda: problems):
        assert value() == 1
        problems.clear()
        assert value() is None
