# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A JobSet CRD that lacks a field that a runtime needs."""

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, eventually, free_ports
from controller_runtime.rest import Config, Request, Transport
from trainerctl.localcluster.tools import JOBSET

from pkg.controller.applier import OLD_JOB_SET as MESSAGE
from testkit.builders import written_runtime, written_train_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("leave_no_jobs")]


async def test_a_train_job_that_needs_a_newer_job_set_is_named_by_an_event_and_by_readiness(
    run_manager: Any, live_client: LiveClient, namespace: str
) -> None:
    binary = (await Binaries().locate(JOBSET))[JOBSET.name]
    if "volumeClaimPolicies" in str(binary.manifests()):
        pytest.skip("the installed JobSet has the field")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = {"volumeClaimPolicies": [{"templates": [{"metadata": {"name": "data"}, "spec": claim}]}]}
    await live_client.create(written_runtime(namespace, job_set=claims))
    (port,) = free_ports(1)
    async with (
        run_manager(health_probe_bind_address=f"127.0.0.1:{port}"),
        Transport(Config(host=f"http://127.0.0.1:{port}")) as probe,
    ):

        async def readiness() -> tuple[int, str]:
            """Return the code and the line of the check of JobSet."""
            response = await probe.send(Request("GET", "/readyz", (("verbose", ""),)))
            lines = (await response.read()).decode().splitlines()
            return response.status, next(each for each in lines if "jobset" in each)

        async def ready() -> bool:
            return await readiness() == (200, "[+]jobset ok")

        await eventually(ready, timeout=30, reason="the manager is ready")
        await live_client.create(written_train_job(namespace, "runtime"))

        async def reported() -> bool:
            found = await live_client.list(Event, namespace=namespace)
            return any(MESSAGE in str(each.to_dict().get("message")) for each in found)

        await eventually(reported, timeout=30, reason="the event names JobSet")
        # It is still ready, because other TrainJobs run.
        assert await readiness() == (200, f"[+]jobset ok: {MESSAGE}")
