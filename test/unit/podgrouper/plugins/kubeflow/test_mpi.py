# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from testkit.grouping import group_of, make_object, make_pod

SPECS = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
DELAYED = {"launcherCreationPolicy": "WaitForWorkersReady", **SPECS}
LAUNCHER = {"training.kubeflow.org/job-name": "j", "training.kubeflow.org/job-role": "launcher"}


async def test_a_launcher_that_is_being_deleted_does_not_count() -> None:
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=DELAYED)
    leaving = make_pod("l", labels=LAUNCHER, deletionTimestamp="2001-01-01T00:00:00Z", finalizers=["f"])

    assert (await group_of(make_pod("w", job), job, leaving)).min_available == 2


@pytest.mark.parametrize(("phase", "needed"), [("Running", 3), ("Failed", 2), ("Succeeded", 2)])
async def test_a_launcher_that_has_ended_does_not_count(phase: str, needed: int) -> None:
    job = make_object("kubeflow.org/v1", "MPIJob", "j", spec=DELAYED)
    launcher = make_pod("l", labels=LAUNCHER)
    launcher.status.phase = phase

    assert (await group_of(make_pod("w", job), job, launcher)).min_available == needed
