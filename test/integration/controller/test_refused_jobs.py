# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The event about a TrainJob that has not started quotes other controllers' events, with the manager's own rights."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery.meta import format_time
from controller_runtime.recorder import Broadcaster
from controller_runtime.rest import Config, RESTMapper, Transport

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.controller.reports import Starts
from testkit.builders import written_train_job

pytestmark = pytest.mark.integration
TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}}}


@pytest.mark.parametrize(
    ("status", "about", "reason", "message"),
    [
        (
            None,
            "JobSet",
            "JobCreationFailed",
            'Job.batch "job-node-0" is invalid: spec.template: Required value',
        ),
        (
            "active",
            "Job",
            "FailedCreate",
            'pods "x" is forbidden: violates PodSecurity "baseline": privileged',
        ),
    ],
)
async def test_the_api_servers_text_is_quoted(
    live_client: LiveClient,
    trainer_config: Config,
    namespace: str,
    status: str | None,
    about: str,
    reason: str,
    message: str,
) -> None:
    metadata: dict[str, Any] = {"name": "job", "namespace": namespace}
    created = await live_client.create(written_train_job(namespace, "any", kind=None))
    owner: dict[str, Any] = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "job"}
    owner |= {"uid": created.metadata.uid, "controller": True}
    spec = {"replicatedJobs": [{"name": "node", "template": TEMPLATE}]}
    job_set = await live_client.create(
        JobSet.from_dict({"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec})
    )
    if status:
        counts = dict.fromkeys(("active", "failed", "ready", "succeeded", "suspended"), 0)
        job_set.status = type(job_set.status).from_dict(
            {"replicatedJobsStatus": [{"name": "node", **counts}]}
        )
        job_set = await live_client.status.update(job_set)
    uid = job_set.metadata.uid if about == "JobSet" else "of-the-job"
    name = "job" if about == "JobSet" else "job-node-0"
    event = {
        "metadata": {"name": "refused", "namespace": namespace},
        "involvedObject": {"kind": about, "namespace": namespace, "name": name, "uid": uid},
        "lastTimestamp": format_time(datetime.now(UTC)),
        "type": "Warning",
        "reason": reason,
        "message": message,
    }
    await live_client.create(Event.from_dict(event))

    async with Transport(trainer_config) as transport, anyio.create_task_group() as tasks:
        as_manager = LiveClient(transport, RESTMapper(transport))
        broadcaster = Broadcaster(as_manager)
        starts = Starts(as_manager, broadcaster.recorder_for("test"), 0.1, events=as_manager)
        tasks.start_soon(broadcaster.start)
        tasks.start_soon(starts.start)
        starts.observe(created)

        async def reported() -> list[str]:
            events = await live_client.list(Event, namespace=namespace)
            return [each.message or "" for each in events if each.reason == "TrainJobNotStarted"]

        (found,) = await eventually(reported, timeout=30, reason="the TrainJob is reported")
        tasks.cancel_scope.cancel()
    assert message.rpartition(": ")[2] in found
