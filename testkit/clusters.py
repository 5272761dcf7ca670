# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests with a whole cluster: the releases of the cluster, and edits of TrainJobs.

The variables ``CLUSTER_KUBERNETES`` and ``CLUSTER_JOBSET`` choose the releases for the tests of Kubernetes' own gangs.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.conditions import is_true
from controller_runtime.machinery.errors import StatusError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import TrainJob

KUBERNETES = os.environ.get("CLUSTER_KUBERNETES", "1.35")
JOBSET = os.environ.get("CLUSTER_JOBSET", "0.11" if KUBERNETES == "1.35" else "0.12")
GANGS: dict[tuple[str, str], type[Object]] = {
    ("1.35", "0.11"): v1alpha1.Workload,
    ("1.35", "0.12"): v1alpha1.Workload,
    ("1.36", "0.12"): v1alpha2.PodGroup,
    ("1.37", "0.12"): v1beta1.PodGroup,
}
"""The kind of gangs by releases of Kubernetes and JobSet; JobSet's CRD must have the pod field that names the gang."""


def gang_kind() -> type[Object]:
    """Return the kind of gangs of the chosen releases; skip the calling module if these releases have no gangs."""
    if (KUBERNETES, JOBSET) not in GANGS:
        reason = f"Kubernetes {KUBERNETES} with JobSet {JOBSET} cannot schedule gangs"
        pytest.skip(reason, allow_module_level=True)
    return GANGS[KUBERNETES, JOBSET]


async def job_set_at(
    client: LiveClient, key: NamespacedName | tuple[str, str], *, timeout: float = 60
) -> JobSet:
    """Wait until the JobSet of a TrainJob exists; return it."""
    return await eventually(lambda: client.get(JobSet, key), timeout=timeout, reason=f"JobSet {key} exists")


async def until(client: LiveClient, job: TrainJob, condition: str, *, timeout: float = 120) -> TrainJob:
    """Wait until a condition of a TrainJob is true; return the TrainJob."""

    async def reached() -> TrainJob | None:
        found = await client.get(TrainJob, job.key)
        return found if is_true(found.status.conditions, condition) else None

    found = await eventually(reached, timeout=timeout, reason=f"TrainJob {job.key} is {condition}")
    assert isinstance(found, TrainJob)
    return found


async def edit_spec(client: LiveClient, job: TrainJob, **spec: Any) -> TrainJob:
    """Change the spec as ``kubectl patch`` does; try again while that is refused because pods have not ended."""
    body = raw_patch(MERGE, json.dumps({"spec": spec}).encode())

    async def accepted() -> TrainJob | None:
        try:
            return await client.patch(job, body)
        except StatusError as error:
            if "is still active" not in str(error):
                raise
            return None

    changed = await eventually(accepted, timeout=60, reason="the pods of the suspended TrainJob have ended")
    assert isinstance(changed, TrainJob)
    return changed
