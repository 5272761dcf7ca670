# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient, raw_patch
from controller_runtime.envtest import eventually
from controller_runtime.machinery import NamespacedName, metadata_only
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.rest import AnswerError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import (
    train_job_document,
    written_runtime,
    written_train_job,
)

pytestmark = pytest.mark.integration


async def test_a_train_job_may_follow_its_runtime_at_once(
    admitting_manager: Callable[[], AbstractAsyncContextManager[None]],
    live_client: LiveClient,
    namespace: str,
) -> None:
    async with admitting_manager():
        for number in range(30):  # each may be faster than the watch
            name = f"plain-{number}"
            await live_client.create(written_runtime(namespace, name))
            await live_client.create(written_train_job(namespace, name, name=name))

        async def all_built() -> bool:
            return len(await live_client.list(JobSet, namespace=namespace)) == 30

        await eventually(all_built, timeout=20, reason="every TrainJob has its JobSet")
        warnings = [
            each for each in await live_client.list(Event, namespace=namespace) if each.type == "Warning"
        ]
        assert warnings == []


def wide(name: str, namespace: str, terms: int = 40_000) -> TrainJob:
    """Return a TrainJob that fits the schema and decodes to far more than its size."""
    affinity: dict[str, Any] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * terms}
    }
    pod = {"affinity": {"nodeAffinity": affinity}}
    job = train_job(name, namespace)
    job["spec"]["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], "spec": pod}]
    return TrainJob.from_dict(job)


def train_job(name: str, namespace: str) -> dict[str, Any]:
    return train_job_document(namespace, "plain", name=name, kind="TrainingRuntime", suspend=True)


async def test_a_train_job_that_decodes_to_too_much_is_denied_and_a_stored_one_can_be_mended_and_deleted(
    admitting_manager: Callable[[], AbstractAsyncContextManager[None]],
    live_client: LiveClient,
    namespace: str,
) -> None:
    await live_client.create(written_runtime(namespace, "plain"))
    for name in ("mended", "deleted"):
        with pytest.raises(AnswerError):  # it is created, but not decoded here either
            await live_client.create(wide(name, namespace))
    mended, deleted = (NamespacedName(namespace, name) for name in ("mended", "deleted"))
    async with admitting_manager():
        with pytest.raises(
            ForbiddenError,
            match=r"denied the request: the object is too large: it has more than 12000 objects",
        ):
            await live_client.create(wide("new", namespace))
        await patch(live_client, mended, {"metadata": {"labels": {"a": "b"}}})
        affinity = wide("mended", namespace, terms=40_001).to_dict()["spec"]
        with pytest.raises(ForbiddenError, match="the object is too large"):
            await patch(live_client, mended, {"spec": affinity})
        await patch(live_client, mended, {"spec": {"podTemplateOverrides": None}})
        assert (await live_client.get(TrainJob, mended)).labels == {"a": "b"}

        await patch(live_client, deleted, {"metadata": {"finalizers": ["example.com/kept"]}})
        await live_client.delete(metadata_only(TrainJob).from_dict({"metadata": deleted._asdict()}))
        await patch(live_client, deleted, {"metadata": {"finalizers": None}})
        with pytest.raises(NotFoundError):
            await live_client.get(TrainJob, deleted)


async def test_a_large_train_job_of_an_ordinary_shape_is_admitted(
    admitting_manager: Callable[[], AbstractAsyncContextManager[None]],
    live_client: LiveClient,
    namespace: str,
) -> None:
    await live_client.create(written_runtime(namespace, "plain"))
    job = train_job("large", namespace)
    value = '{"a": [1, 2, 3], "b": "' + "x" * 4000 + '"}'
    job["spec"]["trainer"] = {"env": [{"name": f"E{number}", "value": value} for number in range(250)]}
    async with admitting_manager():
        await live_client.create(TrainJob.from_dict(job))


async def patch(live_client: LiveClient, key: NamespacedName, changes: dict[str, Any]) -> None:
    """Change a TrainJob of any size; the answer is decoded as metadata alone."""
    named = metadata_only(TrainJob).from_dict({"metadata": key._asdict()})
    body = json.dumps(changes).encode()
    await live_client.patch(named, raw_patch("application/merge-patch+json", body))
