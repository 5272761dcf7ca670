# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest
from controller_runtime.apis.meta.v1 import Condition
from controller_runtime.machinery import GVK, NamespacedName
from controller_runtime.metrics import REGISTRY
from prometheus_client import CollectorRegistry

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.metrics import DegradedKinds, Phase, TrainJobPhases
from pkg.metrics.metrics import phase_of
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
