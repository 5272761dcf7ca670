# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Edits, other writers and deletions around a TrainJob, on a real API server without JobSet's controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.client import JSON, MERGE, LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery.errors import InvalidError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.controller import applier as writes
from pkg.controller.applier import PendingError
from testkit.builders import written_train_job
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


async def built(client: LiveClient, job: TrainJob) -> tuple[TrainJob, JobSet]:
    """Create a TrainJob, and return it with its JobSet."""
    made = await client.create(job)
    return made, await job_set_at(client, made.key)


async def edit(client: LiveClient, job: TrainJob, **spec: Any) -> None:
    await client.patch(job, raw_patch(MERGE, json.dumps({"spec": spec}).encode()))


async def test_another_order_of_variables_takes_effect(
    run_manager: RunManager, live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    key = (namespace, "job")
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]

    async def order() -> list[str]:
        (job,) = (await live_client.get(JobSet, key)).spec.replicated_jobs or []
        (container,) = job.template.spec.template.spec.containers or []
        return [each.name for each in container.env or () if each.name in ("A", "B")]

    async with run_manager():
        job, _ = await built(
            live_client,
            written_train_job(namespace, torch_runtime, kind=None, suspend=True, trainer={"env": env}),
        )
        assert await order() == ["A", "B"]
        await edit(live_client, job, trainer={"env": env[::-1]})

        async def reversed_() -> bool:
            return await order() == ["B", "A"]

        await eventually(reversed_, reason="the order follows")


async def test_a_patch_whose_tests_fail_waits_and_an_invalid_one_is_an_error(
    live_client: LiveClient, namespace: str, torch_runtime: str
) -> None:
    """If a test fails, the server only reports that the request is invalid."""
    stored = await live_client.create(written_train_job(namespace, torch_runtime, kind=None, suspend=True))
    seen = stored.deep_copy()
    seen.metadata.annotations = {"a": "1"}
    with pytest.raises(InvalidError) as stale:
        await live_client.patch(stored, writes.remove_annotation(seen, "a"))
    with pytest.raises(PendingError, match="meanwhile"):
        writes.raise_if_stale(stale.value, "it changed meanwhile")
    body = json.dumps([{"op": "replace", "path": "/spec/runtimeRef/name", "value": "other"}]).encode()
    with pytest.raises(InvalidError, match="field is immutable") as invalid:
        await live_client.patch(stored, raw_patch(JSON, body))
    writes.raise_if_stale(invalid.value, "it changed meanwhile")
