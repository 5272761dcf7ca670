# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError

SPECS = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
DELAYED = {"launcherCreationPolicy": "WaitForWorkersReady", **SPECS}
LAUNCHER = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/job-role": "launcher"}


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_a_launcher_that_waits_for_its_workers_is_not_needed_until_it_is_there(
    version: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object(f"kubeflow.org/{version}", "MPIJob", "j", spec=DELAYED)
    worker = make_pod("w", job)

    leaving = make_pod("old", labels=LAUNCHER, deletionTimestamp="2001-01-01T00:00:00Z", finalizers=["f"])
    elsewhere = make_pod("other", labels=LAUNCHER, namespace="team-b")
    assert (await group(worker, job, leaving, elsewhere)).min_available == 2
    assert (await group(worker, job, make_pod("l", labels=LAUNCHER))).min_available == 3


@pytest.mark.parametrize(("phase", "needed"), [("Running", 3), ("Failed", 2), ("Succeeded", 2)])
async def test_a_launcher_that_has_ended_does_not_count(
    phase: str, needed: int, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=DELAYED)
    launcher = make_pod("l", labels=LAUNCHER)
    launcher.status.phase = phase

    assert (await group(make_pod("w", job), job, launcher)).min_available == needed


async def test_any_other_policy_needs_the_launcher(make_object: Any, make_pod: Any, group: Any) -> None:
    job = make_object(
        "kubeflow.org/v1", "MPIJob", "j", spec={**DELAYED, "launcherCreationPolicy": "AtStartup"}
    )

    assert (await group(make_pod("w", job), job)).min_available == 3


@pytest.mark.parametrize("launcher", [{}, {"replicas": 0}, {"replicas": "1"}, None])
async def test_a_launcher_to_be_left_out_must_be_counted(
    launcher: Any, make_object: Any, make_pod: Any, group: Any
) -> None:
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}
    spec = {**DELAYED, **policy, "mpiReplicaSpecs": {"Launcher": launcher}}
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=spec)

    with pytest.raises(GroupingError, match="the type of the job j doesn't allow for 0 mpiReplicaSpecs pods"):
        await group(make_pod("w", job), job)
