# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A JobSet CRD that lacks a field which a runtime needs."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, eventually

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.controller.oldjobset import MESSAGE
from pkg.localcluster.tools import JOBSET

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]


async def test_a_train_job_that_needs_a_newer_job_set_has_an_event_that_says_so(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    binary = (await Binaries().locate(JOBSET))[JOBSET.name]
    if "volumeClaimPolicies" in str(binary.manifests()):
        pytest.skip("the installed JobSet has the field")
    pod = {"containers": [{"name": "node", "image": "busybox"}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"templates": [{"metadata": {"name": "data"}, "spec": claim}]}]
    spec = {"template": {"spec": {"replicatedJobs": [job], "volumeClaimPolicies": claims}}}
    metadata = {"name": "claims", "namespace": namespace}
    await live_client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))
    async with run_manager():
        ref = {"name": "claims", "kind": "TrainingRuntime"}
        metadata = {"name": "job", "namespace": namespace}
        await live_client.create(TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": ref}}))

        async def reported() -> bool:
            found = await live_client.list(Event, namespace=namespace)
            return any(MESSAGE in str(each.to_dict().get("message")) for each in found)

        await eventually(reported, timeout=30, reason="the event names JobSet")
