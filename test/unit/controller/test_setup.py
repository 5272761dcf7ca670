# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from controller_runtime.controller import Options

from pkg.apis.config.v1alpha1 import defaulted
from pkg.app import flags
from pkg.controller import setup_controllers
from pkg.controller.reports import Starts
from testkit.controllers import StubManager

ALL = {"trainjob_controller", "trainingruntime_controller", "clustertrainingruntime_controller"}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("*", ALL),
        ("*,-trainjob", ALL - {"trainjob_controller"}),
        ("trainjob", {"trainjob_controller"}),
        ("", set()),
    ],
)
def test_the_enabled_controllers_are_registered(argument: str, expected: set[str]) -> None:
    mgr: Any = StubManager()
    setup_controllers(mgr, {}, enabled=flags.parse([f"--controllers={argument}"]).enabled)
    assert mgr.controller_names == expected


def test_finished_train_jobs_are_deleted_only_with_the_feature_gate() -> None:
    cfg = defaulted()
    for enabled in (False, True):
        cfg.feature_gates = {"TTLAfterFinished": enabled}
        mgr: Any = StubManager()
        setup_controllers(mgr, {}, cfg=cfg)
        assert mgr.controller_names == (ALL | {"trainjob_ttl_controller"} if enabled else ALL)


def test_the_concurrency_of_a_kind_counts_unless_the_options_say_otherwise() -> None:
    mgr: Any = StubManager()
    mgr.controller_options.group_kind_concurrency = {"TrainJob.trainer.kubeflow.org": 7}
    setup_controllers(mgr, {})
    workers = {each.name: each.settings.max_concurrent_reconciles for each in mgr.controllers}
    assert workers == {name: 7 if name == "trainjob_controller" else 1 for name in ALL}
    mgr = StubManager()
    setup_controllers(mgr, {}, Options(max_concurrent_reconciles=3))
    assert {each.settings.max_concurrent_reconciles for each in mgr.controllers} == {3}


def test_events_come_from_the_name_they_always_had() -> None:
    mgr: Any = StubManager()
    setup_controllers(mgr, {})
    assert mgr.sources == ["trainer-trainjob-controller"]


@pytest.mark.parametrize("may_list", [False, True])
def test_pods_are_read_for_a_report_only_with_the_gate_whose_role_permits_it(*, may_list: bool) -> None:
    mgr: Any = StubManager()
    cfg = defaulted()
    cfg.feature_gates = {"FailureEvidence": may_list}
    setup_controllers(mgr, {}, cfg=cfg)
    (starts,) = [each for each in mgr.runnables if isinstance(each, Starts)]
    assert starts._pods is (mgr.api_reader if may_list else None)


@pytest.mark.parametrize("after", ["0s", "10m"])
def test_train_jobs_that_do_not_start_are_reported_unless_the_time_is_zero(after: str) -> None:
    mgr: Any = StubManager()
    cfg = defaulted()
    cfg.not_started_after = after
    setup_controllers(mgr, {}, cfg=cfg)
    assert any(isinstance(each, Starts) for each in mgr.runnables) is (after != "0s")


def test_the_sources_of_train_jobs_are_these() -> None:
    mgr: Any = StubManager()
    setup_controllers(mgr, {}, enabled=lambda name: name == "trainjob")
    (controller,) = mgr.controllers
    assert sorted(map(str, controller._sources)) == [
        "TrainJobs without a JobSet",
        "deadlines of TrainJobs",
        "kind source: ClusterTrainingRuntime.trainer.kubeflow.org",
        "kind source: JobSet.jobset.x-k8s.io",
        "kind source: TrainJob.trainer.kubeflow.org",
        "kind source: TrainingRuntime.trainer.kubeflow.org",
    ]


@pytest.mark.parametrize(
    ("version", "watched"), [("2.1", {"TrainingRuntime", "TrainJob"}), ("2.3", {"TrainingRuntime"})]
)
def test_runtimes_are_protected_only_in_the_first_generation(version: str, watched: set[str]) -> None:
    mgr: Any = StubManager()
    cfg = defaulted()
    cfg.compatibility_version = version
    setup_controllers(mgr, {}, enabled=lambda name: name == "trainingruntime", cfg=cfg)
    (controller,) = mgr.controllers
    kinds = {f"kind source: {kind}.trainer.kubeflow.org" for kind in watched}
    assert set(map(str, controller._sources)) == kinds
