# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.field import AggregateError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.webhooks import ClusterTrainingRuntimeWebhook, TrainingRuntimeWebhook, TrainJobWebhook

NO_CONTAINERS = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: Invalid value: {}: must contain the required container"


def runtime(pod: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a runtime whose only job is the trainer's."""
    metadata = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job = {
        "name": "job",
        "replicas": 1,
        "template": {"metadata": metadata, "spec": {"template": {"spec": pod}}},
    }
    return {
        "metadata": {"name": "rt", "namespace": "ns", "labels": labels or {}},
        "spec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


@pytest.mark.parametrize(("pod", "shown"), [({}, "null"), ({"containers": []}, "[]")])
async def test_absent_containers_are_shown_as_null(pod: dict[str, Any], shown: str) -> None:
    with pytest.raises(AggregateError) as raised:
        await TrainingRuntimeWebhook().validate_create(TrainingRuntime.from_dict(runtime(pod)))

    assert str(raised.value) == f"{NO_CONTAINERS.format(shown)} for the ancestor: trainer"


RUNTIME_WEBHOOKS = [
    (TrainingRuntime, TrainingRuntimeWebhook),
    (ClusterTrainingRuntime, ClusterTrainingRuntimeWebhook),
]


@pytest.mark.parametrize(("kind", "webhook"), RUNTIME_WEBHOOKS)
async def test_an_update_of_the_metadata_of_a_refused_runtime_is_allowed(kind: Any, webhook: Any) -> None:
    obj = kind.from_dict(runtime({}))
    assert await webhook().validate_update(obj, obj) == []


@pytest.mark.parametrize(("kind", "webhook"), RUNTIME_WEBHOOKS)
async def test_an_update_to_a_runtime_that_no_train_job_can_use_is_refused(kind: Any, webhook: Any) -> None:
    good, bad = (
        kind.from_dict(runtime({"containers": [{"name": name, "image": "i"}]})) for name in ("node", "other")
    )
    with pytest.raises(AggregateError):
        await webhook().validate_update(good, bad)
    bad.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert await webhook().validate_update(good, bad) == []


async def test_a_train_job_of_an_unregistered_runtime_is_refused() -> None:
    job = TrainJob.from_dict(
        {
            "metadata": {"name": "j"},
            "spec": {"runtimeRef": {"apiGroup": "example.com", "kind": "Foo", "name": "f"}},
        }
    )
    webhook = TrainJobWebhook({})
    before = job.deep_copy()
    before.spec.suspend = True
    for verdict in (webhook.validate_create(job), webhook.validate_update(before, job)):
        with pytest.raises(ForbiddenError, match=r"^unsupported runtime: Foo\.example\.com$"):
            await verdict
    assert await webhook.validate_delete(job) == []


async def test_a_finalizer_comes_off_whatever_became_of_the_runtime() -> None:
    job = TrainJob.from_dict(
        {"metadata": {"name": "j", "finalizers": ["a/b"]}, "spec": {"runtimeRef": {"name": "gone"}}}
    )
    changed = job.deep_copy()
    changed.metadata.finalizers = None
    webhook = TrainJobWebhook({})
    assert await webhook.validate_update(job, changed) == []
    changed.spec.suspend = True
    with pytest.raises(ForbiddenError):
        await webhook.validate_update(job, changed)
    changed.metadata.deletion_timestamp = "2025-01-01T00:00:00Z"
    assert await webhook.validate_update(job, changed) == []
