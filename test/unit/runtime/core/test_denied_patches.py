# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""With ``runtimePatches: {securityContext: deny}``, no pod gets the securityContext of a TrainJob.

This holds for TrainJobs that no webhook has reviewed as well.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.field import AggregateError
from controller_runtime.machinery.patch import StrategicMergeError

from pkg.apis.config.v1alpha1 import ALLOW, DENY, RuntimePatches, defaulted
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    ContainerOverride,
    ContainerPatch,
    PodSpecPatch,
    PodTemplateSpecOverride,
    TrainJob,
)
from pkg.runtime import Runtime, core, runtime_for
from pkg.webhooks import TrainJobWebhook
from testkit.builders import runtime_patch, train_job_document, written_runtime

PATH = (
    "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
)
DETAIL = "the manager's Configuration denies a securityContext in runtime patches"
CONTEXTS: dict[str, dict[str, Any]] = {
    "securityContext": {"securityContext": {"runAsUser": 0}},
    "containers[0].securityContext": {
        "containers": [{"name": "node", "securityContext": {"privileged": True}}]
    },
    "initContainers[1].securityContext": {
        "initContainers": [{"name": "a"}, {"name": "first", "securityContext": {}}]
    },
}
HARMLESS: dict[str, Any] = {"nodeSelector": {"a": "b"}, "containers": [{"name": "node"}]}


def patch(pod: dict[str, Any], manager: str = "acme.io/tool") -> dict[str, Any]:
    return runtime_patch(manager, copy.deepcopy(pod))


def train_job(*patches: dict[str, Any], kind: str = "TrainingRuntime", **spec: Any) -> TrainJob:
    spec |= {"kind": kind, "metadata": {"uid": "u"}, "runtimePatches": list(patches)}
    return TrainJob.from_dict(train_job_document("a", "runtime", **spec))


async def served(choice: str | None, version: str = "2.1") -> tuple[dict[str, Runtime], TrainJobWebhook]:
    init = [{"name": name, "image": "busybox"} for name in ("a", "first")]
    made = written_runtime("a", pod={"initContainers": init}, mlPolicy={"numNodes": 1})
    cluster = {"metadata": {"name": "runtime"}, "spec": made.to_dict()["spec"]}
    client = FakeClient(made, ClusterTrainingRuntime.from_dict(cluster))
    cfg = defaulted(version)
    cfg.runtime_patches = None if choice is None else RuntimePatches(security_context=choice)
    runtimes = await core.new(client, client, cfg=cfg)
    return runtimes, TrainJobWebhook(runtimes, cfg)


async def build(runtimes: dict[str, Runtime], job: TrainJob) -> str:
    made = await runtime_for(runtimes, job.spec.runtime_ref).new_objects(job)
    return str([each.to_dict() for each in made])


@pytest.mark.parametrize("version", ["2.1", "2.3"])
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("where", CONTEXTS)
async def test_webhook_and_manager_refuse_the_same_fields_by_their_path(
    where: str, suspend: bool, kind: str, version: str
) -> None:
    runtimes, webhook = await served(DENY, version)
    job = train_job(patch(CONTEXTS[where]), kind=kind, suspend=suspend)
    error = f"{PATH}.{where}: Forbidden: {DETAIL}"

    with pytest.raises(AggregateError) as refused:
        await webhook.validate_create(job)
    with pytest.raises(StrategicMergeError) as unbuilt:
        await build(runtimes, job)

    assert str(refused.value) == error
    assert str(unbuilt.value) == f"runtimePatches: {error}"


async def test_every_patch_is_checked_and_named_by_its_place() -> None:
    runtimes, webhook = await served(DENY)
    both = train_job(
        patch(HARMLESS), *(patch(each, f"acme.io/{n}") for n, each in enumerate(CONTEXTS.values()))
    )

    with pytest.raises(AggregateError) as refused:
        await webhook.validate_create(both)

    for number, where in enumerate(CONTEXTS, 1):
        assert f"{PATH}.{where}".replace("[0]", f"[{number}]", 1) in str(refused.value)
    assert PATH + "." not in str(refused.value)
    assert "nodeSelector" in await build(runtimes, train_job(patch(HARMLESS)))
    assert await webhook.validate_create(train_job(patch(HARMLESS))) == []
    without_pod = patch({})
    del without_pod["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    assert await webhook.validate_create(train_job(without_pod)) == []


@pytest.mark.parametrize("choice", [None, "", ALLOW])
@pytest.mark.parametrize("where", CONTEXTS)
async def test_all_is_allowed_by_default(where: str, choice: str | None) -> None:
    runtimes, webhook = await served(choice)
    job = train_job(patch(CONTEXTS[where]))

    assert await webhook.validate_create(job) == []
    assert "securityContext" in await build(runtimes, job)


async def test_a_stored_train_job_can_be_changed_elsewhere_and_lose_the_patch() -> None:
    _, webhook = await served(DENY)
    stored = train_job(patch(CONTEXTS["securityContext"]), suspend=True)
    resumed, cleaned = train_job(patch(CONTEXTS["securityContext"])), train_job(suspend=True)
    changed = train_job(patch({"securityContext": {"runAsUser": 1}}), suspend=True)

    assert await webhook.validate_update(stored, resumed) == []
    assert await webhook.validate_update(stored, cleaned) == []
    for old, new in ((stored, changed), (cleaned, stored)):
        with pytest.raises(AggregateError, match="Forbidden"):
            await webhook.validate_update(old, new)


async def test_an_unchanged_patch_of_a_container_that_the_runtime_lost_does_not_block_a_suspension() -> None:
    _, webhook = await served(None)
    lost = patch({"containers": [{"name": "sidecar"}]})
    old, new = train_job(lost), train_job(lost, suspend=True)

    with pytest.raises(AggregateError, match="container that doesn't exist"):
        await webhook.validate_create(old)
    assert await webhook.validate_update(old, new) == []


async def test_the_mirror_of_present_fields_has_no_effect_and_is_not_checked() -> None:
    runtimes, webhook = await served(DENY)
    mirror = patch(CONTEXTS["securityContext"], "trainer.kubeflow.org/first-generation")
    without = train_job(mirror)
    beside = train_job(mirror, labels={"a": "b"})

    with pytest.raises(StrategicMergeError):
        await build(runtimes, without)
    assert await webhook.validate_create(beside) == []
    assert "securityContext" not in await build(runtimes, beside)


def test_the_guide_lists_the_fields_that_overrides_lack() -> None:
    new = {
        wire(info, name)
        for patched, overridden in (
            (PodSpecPatch, PodTemplateSpecOverride),
            (ContainerPatch, ContainerOverride),
        )
        for name, info in patched.model_fields.items()
        if name not in overridden.model_fields
    }
    guide = (Path(__file__).parents[4] / "docs" / "migration.md").read_text()
    table = guide[guide.index("| new field | where a TrainJob sets it |") :].partition("\n\n")[0]

    assert new == {"securityContext", "terminationGracePeriodSeconds"}
    assert all(f"| `{name}`" in table for name in new)


def wire(info: Any, name: str) -> str:
    return str(info.alias or name)
