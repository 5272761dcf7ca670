# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainJob that requires Kubernetes' own gangs, on a real API server that does not serve them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import consistently, eventually

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_runtime

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


@pytest.mark.usefixtures("leave_no_jobs")
async def test_it_is_reported_and_not_started_and_the_others_are(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    async with run_manager() as mgr:
        policies: dict[str, dict[str, Any]] = {"gang": {"podGroupPolicy": {"workload": {}}}, "plain": {}}
        for name, policy in policies.items():
            await live_client.create(written_runtime(namespace, name, **policy))
            spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": name}}
            metadata = {"name": name, "namespace": namespace}
            await live_client.create(TrainJob.from_dict({"metadata": metadata, "spec": spec}))

        async def reason() -> str | None:
            found = (await live_client.get(TrainJob, (namespace, "gang"))).status.conditions or []
            return next((each.reason for each in found if each.type == "GangSchedulingUnavailable"), None)

        assert await eventually(reason, timeout=60, reason="the condition is there") == "GangAPINotServed"
        await eventually(
            lambda: live_client.get(JobSet, (namespace, "plain")), timeout=60, reason="the other one starts"
        )

        async def only_the_other() -> bool:
            found = await live_client.list(JobSet, namespace=namespace)
            return [each.name for each in found] == ["plain"]

        await consistently(only_the_other, duration=2, reason="no pod of the gang may start")

        async def lines() -> list[str]:
            events = await live_client.list(Event, namespace=namespace)
            return [each.message or "" for each in events if "serves no gangs" in (each.message or "")]

        assert await eventually(lines, timeout=30, reason="the event names the API and its feature gate")
        assert not mgr.cache.degraded(), "no kind is watched that is not served"
