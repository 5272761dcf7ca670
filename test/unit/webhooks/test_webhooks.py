# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.machinery.field import AggregateError

from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.webhooks import ClusterTrainingRuntimeWebhook, TrainingRuntimeWebhook, TrainJobWebhook

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
JOBS = "spec.template.spec.replicatedJobs"
CONTAINERS = (
    f'{JOBS}[0].template.spec.template.spec.containers: Invalid value: [{{"name":"node","image":"i","resources":{{}}}}]'
    ": must contain the required container for the ancestor: model-initializer"
)


def spec(step: str | None, *, container: str = "node", replicas: int = 1) -> dict[str, Any]:
    template: dict[str, Any] = {
        "spec": {"template": {"spec": {"containers": [{"name": container, "image": "i"}]}}}
    }
    if step is not None:
        template["metadata"] = {"labels": {STEP: step}}
    return {
        "template": {
            "spec": {"replicatedJobs": [{"name": "job", "replicas": replicas, "template": template}]}
        }
    }


def runtime(data: dict[str, Any], labels: dict[str, str] | None = None) -> Any:
    return {"metadata": {"name": "rt", "namespace": "ns", "labels": labels or {}}, "spec": data}


@pytest.mark.parametrize(
    "data",
    [
        spec("trainer"),
        spec("dataset-initializer", container="dataset-initializer"),
        spec("model-initializer", container="model-initializer"),
        spec("something-else", container="x", replicas=3),
        spec(None, container="x", replicas=3),
        {},
    ],
)
async def test_a_template_that_keeps_the_contract_is_allowed(data: dict[str, Any]) -> None:
    assert await TrainingRuntimeWebhook().validate_create(TrainingRuntime.from_dict(runtime(data))) == []
    cluster = ClusterTrainingRuntime.from_dict(runtime(data))
    assert await ClusterTrainingRuntimeWebhook().validate_create(cluster) == []
    assert await ClusterTrainingRuntimeWebhook().validate_update(cluster, cluster) == []


NO_CONTAINERS = f"{JOBS}[0].template.spec.template.spec.containers: Invalid value: {{}}: must contain the required container"


@pytest.mark.parametrize(("pod", "shown"), [({}, "null"), ({"containers": []}, "[]")])
async def test_absent_containers_are_shown_as_null(pod: dict[str, Any], shown: str) -> None:
    data = spec("trainer")
    data["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] = pod

    with pytest.raises(AggregateError) as raised:
        await TrainingRuntimeWebhook().validate_create(TrainingRuntime.from_dict(runtime(data)))

    assert str(raised.value) == f"{NO_CONTAINERS.format(shown)} for the ancestor: trainer"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (spec("trainer", replicas=2), f"{JOBS}[0].replicas: Invalid value: 2: always must be 1"),
        (spec("trainer", replicas=0), f"{JOBS}[0].replicas: Invalid value: 0: always must be 1"),
        (
            spec("model-initializer"),
            CONTAINERS,
        ),
    ],
)
async def test_a_template_that_breaks_it_is_refused_with_the_field(
    data: dict[str, Any], message: str
) -> None:
    with pytest.raises(AggregateError) as caught:
        await TrainingRuntimeWebhook().validate_create(TrainingRuntime.from_dict(runtime(data)))
    assert str(caught.value) == message
    cluster = ClusterTrainingRuntime.from_dict(runtime(data))
    with pytest.raises(AggregateError):
        await ClusterTrainingRuntimeWebhook().validate_create(cluster)
    before = ClusterTrainingRuntime.from_dict(runtime({}))
    with pytest.raises(AggregateError):
        await ClusterTrainingRuntimeWebhook().validate_update(before, cluster)
    assert (
        await ClusterTrainingRuntimeWebhook().validate_update(cluster, cluster) == []
    )  # only metadata has changed


async def test_an_update_of_a_training_runtime_always_passes() -> None:
    broken = TrainingRuntime.from_dict(runtime(spec("trainer", replicas=2)))
    assert await TrainingRuntimeWebhook().validate_update(broken, broken) == []


async def test_a_deprecated_cluster_runtime_is_warned_of_when_it_is_created() -> None:
    obj = ClusterTrainingRuntime.from_dict(runtime({}, {"trainer.kubeflow.org/support": "deprecated"}))
    (warning,) = await ClusterTrainingRuntimeWebhook().validate_create(obj)
    assert warning.startswith('ClusterTrainingRuntime "rt" is deprecated and will be removed')
    assert await ClusterTrainingRuntimeWebhook().validate_update(obj, obj) == []


async def test_a_warning_goes_along_with_a_refusal() -> None:
    labels = {"trainer.kubeflow.org/support": "deprecated"}
    obj = ClusterTrainingRuntime.from_dict(runtime(spec("trainer", replicas=2), labels))
    with pytest.raises(AggregateError) as caught:
        await ClusterTrainingRuntimeWebhook().validate_create(obj)
    (note,) = caught.value.__notes__
    assert "is deprecated" in note


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
