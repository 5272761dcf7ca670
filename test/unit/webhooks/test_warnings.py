# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.fake import FakeClient
from controller_runtime.webhook import ValidatorHandler

from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    Initializer,
    RunPolicy,
    Trainer,
    TrainingRuntime,
    TrainJob,
)
from pkg.apis.trainer.v1alpha1 import ModelInitializer as Model
from pkg.runtime import core
from pkg.webhooks import ClusterTrainingRuntimeWebhook, TrainingRuntimeWebhook, TrainJobWebhook
from testkit.builders import (
    make_cluster_training_runtime,
    make_replicated_job,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
    written_cluster_runtime,
)

DEPRECATED = {"trainer.kubeflow.org/support": "deprecated"}


@pytest.mark.parametrize("initializer", [None, Initializer(model=Model())], ids=["allowed", "refused"])
async def test_a_train_job_is_warned_of_a_deprecated_runtime_whatever_the_verdict(
    initializer: Initializer | None,
) -> None:
    client = FakeClient(make_cluster_training_runtime(labels=DEPRECATED))
    webhook = TrainJobWebhook(await core.new(client, client))
    train_job = make_train_job("a", "j", initializer=initializer)
    request = AdmissionRequest(uid="1", operation="CREATE", object=train_job.to_dict())

    response = await ValidatorHandler(TrainJob, webhook).handle(request)

    assert response.allowed is (initializer is None)
    assert [warning.split(" and ")[0] for warning in response.warnings or ()] == [
        'Referenced ClusterTrainingRuntime "runtime" is deprecated'
    ]


@pytest.mark.parametrize("container", ["node", "x"], ids=["allowed", "refused"])
async def test_a_deprecated_runtime_is_warned_of_whatever_the_verdict(container: str) -> None:
    job = make_replicated_job("node", ancestor="trainer", container=container)
    runtime = make_cluster_training_runtime(spec=make_training_runtime_spec(job), labels=DEPRECATED)
    request = AdmissionRequest(uid="1", operation="CREATE", object=runtime.to_dict())

    response = await ValidatorHandler(ClusterTrainingRuntime, ClusterTrainingRuntimeWebhook()).handle(request)

    assert response.allowed is (container == "node")
    assert [warning.split(" and ")[0] for warning in response.warnings or ()] == [
        'ClusterTrainingRuntime "runtime" is deprecated'
    ]


@pytest.mark.parametrize(
    ("policy", "warned"),
    [(None, False), ({}, True), ({"workload": {}}, False), ({"coscheduling": {}}, False)],
)
async def test_a_pod_group_policy_without_a_scheduler_is_warned_of(
    policy: dict[str, Any] | None, warned: bool
) -> None:
    data = make_training_runtime("a", "runtime", make_training_runtime_spec()).to_dict()
    data["spec"] |= {} if policy is None else {"podGroupPolicy": policy}
    runtime = TrainingRuntime.from_dict(data)
    client = FakeClient(runtime)
    runtimes = await core.new(client, client)
    job = make_train_job("a", "j", runtime_kind="TrainingRuntime")

    of_runtime = await TrainingRuntimeWebhook().validate_create(runtime)
    of_job = await TrainJobWebhook(runtimes).validate_create(job)

    for warnings in (of_runtime, of_job):
        assert any("no scheduler is named" in each for each in warnings) is warned


async def test_a_pod_group_policy_is_warned_of_when_its_scheduler_is_removed_and_not_again() -> None:
    policies: list[dict[str, Any]] = [{"workload": {}}, {}]
    named, emptied = (
        TrainingRuntime.from_dict(
            {
                "metadata": {"name": "r"},
                "spec": {
                    "podGroupPolicy": policy,
                    "template": {"spec": {"replicatedJobs": [{"name": "node", "replicas": 1}]}},
                },
            }
        )
        for policy in policies
    )
    webhook = TrainingRuntimeWebhook()

    assert len(await webhook.validate_update(named, emptied)) == 1
    assert await webhook.validate_update(emptied, emptied) == []
    assert await webhook.validate_update(emptied, named) == []


@pytest.mark.parametrize(
    ("resources", "fields"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, []),
        ({"requests": {"nvidia.com/gpu": "1"}}, ["resources.limits[nvidia.com/gpu]"]),
        ({"requests": {"memory": "8Gi"}, "limits": {"memory": "4Gi"}}, ["resources.requests.memory"]),
        ({"limits": {f"device-{index}": "1" for index in range(50)}}, ["resources.limits[device-0]"] * 5),
    ],
)
async def test_a_train_job_whose_pods_will_be_refused_is_admitted_with_a_warning(
    resources: dict[str, Any], fields: list[str]
) -> None:
    client = FakeClient(written_cluster_runtime(mlPolicy={}))
    train_job = make_train_job("a", "j", trainer=Trainer.from_dict({"resourcesPerNode": resources}))

    warnings = await TrainJobWebhook(await core.new(client, client)).validate_create(train_job)

    assert len(warnings) == len(fields)
    for warning, named in zip(warnings[:1], fields, strict=False):
        head = "the API server will refuse the Jobs of node: spec.template.spec.containers[0]."
        assert warning.startswith(f"{head}{named}: ")


@pytest.mark.parametrize(
    ("container", "pod", "named"),
    [
        ({"image": "i"}, {}, ""),
        ({}, {}, ""),  # the image may come from the TrainJob
        ({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, {}, ""),  # and so may the volume
        ({"resources": {"requests": {"nvidia.com/gpu": "1"}}}, {}, "containers[0].resources.limits[nvidia.com/gpu]"),
        ({}, {"tolerations": [{"operator": "Exists", "value": "x"}]}, "tolerations[0].value"),
        ({}, {"initContainers": [{"name": "setup"}]}, "initContainers[0].image"),
    ],
    ids=["good", "no-image", "no-volume", "a-device", "a-toleration", "no-image-of-another"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("kind", "webhook"),
    [(TrainingRuntime, TrainingRuntimeWebhook()), (ClusterTrainingRuntime, ClusterTrainingRuntimeWebhook())],
    ids=["namespaced", "cluster"],
)
async def test_a_runtime_whose_pods_will_be_refused_is_admitted_with_a_warning(
    kind: Any, webhook: Any, container: dict[str, Any], pod: dict[str, Any], named: str
) -> None:
    def runtime(container: dict[str, Any], pod: dict[str, Any]) -> Any:
        template = {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", **container}], **pod}}},
        }
        jobs = [{"name": "node", "replicas": 1, "template": template}]
        return kind.from_dict(
            {"metadata": {"name": "r"}, "spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        )

    new = runtime(container, pod)
    expected = [f"the API server will refuse the Jobs of node: spec.template.spec.{named}: "] if named else []
    for warnings in (
        await webhook.validate_create(new),
        await webhook.validate_update(runtime({"image": "other"}, {}), new),
    ):
        assert [each[: len(head)] for each, head in zip(warnings, expected, strict=True)] == expected
    assert await webhook.validate_update(new, new) == []


async def test_the_warnings_about_pods_follow_an_edit_of_the_runtime() -> None:
    client = FakeClient(written_cluster_runtime(pod={"containers": [{"name": "node"}]}, mlPolicy={}))
    webhook = TrainJobWebhook(await core.new(client, client))

    for name in ("j", "k"):  # the check of the first TrainJob is used for the second one
        (warning,) = await webhook.validate_create(make_train_job("a", name))
        assert "containers[0].image: Required value" in warning

    edited = written_cluster_runtime(mlPolicy={})
    edited.metadata = (await client.get(ClusterTrainingRuntime, ("", "runtime"))).metadata
    await client.update(edited)
    assert await webhook.validate_create(make_train_job("a", "j")) == []


@pytest.mark.parametrize(
    ("nodes", "is_valid"), [(2, False), (4, True), (-1, True)], ids=["few", "many", "negative"]
)
async def test_the_success_policy_is_compared_with_the_number_of_nodes(nodes: int, is_valid: bool) -> None:
    """The number of completions is the number of nodes. A template with another number is not used."""
    policy = {"rules": [{"succeededIndexes": "0-3"}]}
    jobs = {"completions": 1, "parallelism": 1, "successPolicy": policy}
    client = FakeClient(written_cluster_runtime(job=jobs, mlPolicy={"torch": {}}))
    train_job = make_train_job("a", "j", trainer=Trainer(num_nodes=nodes))
    warnings = await TrainJobWebhook(await core.new(client, client)).validate_create(train_job)
    found = [each for each in warnings if "spec.successPolicy.rules[0].succeededIndexes" in each]
    assert [each.rpartition(": ")[2] for each in found] == [
        "must be below 2, the number of completions",
    ] * (not is_valid)


async def test_a_train_job_gets_its_own_remarks_whatever_was_reviewed_before() -> None:
    """What reviews find is remembered without the texts of programs, so it must not depend on these texts."""
    pod = {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}
    spec = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": pod}}]}}}
    client = FakeClient(ClusterTrainingRuntime.from_dict({"metadata": {"name": "runtime"}, "spec": spec}))
    webhook = TrainJobWebhook(await core.new(client, client))

    async def remarked(trainer: dict[str, Any], name: str = "j", **annotations: str) -> list[str]:
        data = make_train_job("a", name).to_dict()
        data["metadata"]["annotations"] = {
            f"scheduling.volcano.sh/{key}": value for key, value in annotations.items()
        }
        data["spec"]["trainer"] = trainer
        return [
            each.partition(" has no effect")[0]
            for each in await webhook.validate_create(TrainJob.from_dict(data))
        ]

    for _ in range(2):
        assert await remarked({}) == []
        assert await remarked({"command": ["run"]}) == ["spec.trainer: command"]
        assert await remarked({"command": []}) == ["spec.trainer: command"]
        assert await remarked({"args": ["x"]}) == ["spec.trainer: args"]
        assert await remarked({"env": [{"name": "A", "value": "x"}]}) == ["spec.trainer: env"]
        assert await remarked({}, **{"queue-name": "q"}) == [
            "metadata.annotations[scheduling.volcano.sh/queue-name]:"
        ]
        (long,) = await remarked({}, "j" * 60)
        assert long.startswith("metadata.name: is too long")


async def test_a_train_job_without_a_runtime_has_no_warnings_about_pods() -> None:
    client = FakeClient()
    runtimes = await core.new(client, client)
    job = make_train_job("a", "j", runtime_kind="TrainingRuntime")
    assert await runtimes["TrainingRuntime.trainer.kubeflow.org"].template_violations(job) == []


@pytest.mark.parametrize("enabled", [False, True])
async def test_a_time_to_live_without_its_feature_gate_is_warned_of_when_it_is_set_or_changed(
    enabled: bool,
) -> None:
    cfg = defaulted()
    cfg.feature_gates = {"TTLAfterFinished": enabled}
    runtime = make_cluster_training_runtime()
    client = FakeClient(runtime)
    old, new = make_train_job("a", "j"), make_train_job("a", "j")
    new.spec.ttl_seconds_after_finished = 0
    other = runtime.deep_copy()
    other.spec.run_policy = RunPolicy(ttl_seconds_after_finished=60)
    text = "ttlSecondsAfterFinished: has no effect: the manager's feature gate TTLAfterFinished is disabled"
    job_webhook, webhook = (
        TrainJobWebhook(await core.new(client, client), cfg),
        ClusterTrainingRuntimeWebhook(cfg),
    )
    job_warnings = [f"spec.{text}"] if not enabled else []
    assert (
        await job_webhook.validate_create(new) == await job_webhook.validate_update(old, new) == job_warnings
    )
    edited = new.deep_copy()
    edited.spec.suspend = True
    assert await job_webhook.validate_update(new, edited) == []
    warnings = [f"spec.runPolicy.{text}"] if not enabled else []
    assert await webhook.validate_create(other) == await webhook.validate_update(runtime, other) == warnings
    assert (
        await TrainingRuntimeWebhook(cfg).validate_create(
            TrainingRuntime(metadata=other.metadata, spec=other.spec)
        )
        == warnings
    )
