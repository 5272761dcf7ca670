# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Struct, field
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.config.v1alpha1 import V2_1, V2_3, defaulted
from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import (
    ClusterTrainingRuntime,
    MLPolicy,
    PodTemplateOverride,
    TorchMLPolicySource,
    Trainer,
    TrainJob,
)
from pkg.constants import trainer as constants
from pkg.runtime import Info, UnsupportedTemplateError, core, framework, runtime_for, template_spec_apply
from pkg.runtime.framework import Framework
from pkg.runtime.framework.plugins.jobset import JobSetPlugin
from pkg.runtime.framework.plugins.torch import Torch
from testkit.builders import (
    make_cluster_training_runtime,
    make_job_set,
    make_replicated_job,
    make_train_job,
    make_training_runtime,
    make_training_runtime_spec,
)


def override(**spec: Any) -> PodTemplateOverride:
    return PodTemplateOverride.from_dict({"targetJobs": [{"name": "node"}], "spec": spec})


@pytest.fixture
def client() -> FakeClient:
    return FakeClient(
        make_cluster_training_runtime(
            spec=make_training_runtime_spec(
                make_replicated_job(
                    "node",
                    ancestor="trainer",
                    env={"A": "1"},
                    service_account_name="old",
                    node_selector={"a": "1"},
                ),
                ml_policy=MLPolicy(num_nodes=2, torch=TorchMLPolicySource(num_proc_per_node="auto")),
                labels={"l": "runtime"},
            )
        ),
        make_training_runtime("team-a"),
    )


async def test_a_runtime_given_to_the_pipeline_stays_as_it_was(client: FakeClient) -> None:
    served = (await core.new(client, client))[core.TRAINING_RUNTIME_GROUP_KIND]
    assert isinstance(served, core.TrainingRuntime)
    spec = make_training_runtime_spec(
        make_replicated_job("node", ancestor="trainer", env={"A": "1"}),
        ml_policy=MLPolicy(torch=TorchMLPolicySource()),
        labels={"l": "runtime"},
    )
    train_job = make_train_job(
        "team-a",
        "job",
        trainer=Trainer(num_nodes=3, image="new", args=[]),
        labels={"l": "job"},
        overrides=[override(nodeSelector={"b": "2"}, volumes=[{"name": "v", "emptyDir": {}}])],
    )
    before = spec.to_json(), train_job.to_json()

    (job_set,) = await served.objects_from(spec, train_job)

    assert (spec.to_json(), train_job.to_json()) == before
    assert job_set.labels == {"l": "job"}


async def test_only_the_namespaced_kind_brings_watches(client: FakeClient) -> None:
    made = await core.new(client, client)

    assert made[core.TRAINING_RUNTIME_GROUP_KIND].event_handler_registrars()
    assert made[core.CLUSTER_TRAINING_RUNTIME_GROUP_KIND].event_handler_registrars() == []


async def test_an_override_that_does_not_fit_is_an_error_of_that_field(client: FakeClient) -> None:
    train_job = make_train_job(
        "team-a",
        "job",
        overrides=[override(imagePullSecrets=[{"name": "a"}]), override(imagePullSecrets=[{}])],
    )
    served = runtime_for(await core.new(client, client), train_job.spec.runtime_ref)

    _, (error,) = await served.validate_objects(None, train_job)

    assert error.field == "spec.podTemplateOverrides"
    assert error.detail == "map: map[] does not contain declared merge key: name"


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"targetJobs": [{"name": "lost"}]}, id="a job"),
        pytest.param(
            {"targetJobs": [{"name": "node"}], "spec": {"imagePullSecrets": [{}]}}, id="a key to merge by"
        ),
    ],
)
async def test_unchanged_overrides_do_not_block_a_suspension_after_the_runtime_was_edited(
    client: FakeClient, lost: dict[str, Any]
) -> None:
    fits = override(nodeSelector={"a": "1"}, imagePullSecrets=[{"name": "a"}])
    overrides = [fits, PodTemplateOverride.from_dict(lost)]
    running = make_train_job("team-a", "job", overrides=overrides)
    suspended = make_train_job("team-a", "job", overrides=overrides, suspend=True)
    changed = make_train_job("team-a", "job", overrides=[*overrides, fits], suspend=True)
    review = runtime_for(await core.new(client, client), running.spec.runtime_ref).validate_objects

    assert await review(running, suspended) == ([], [])
    for old, new in ((None, suspended), (suspended, running), (suspended, changed)):
        assert {error.field for error in (await review(old, new))[1]} == {"spec.podTemplateOverrides"}


class _Keeping(framework.CustomValidationPlugin):
    """A plugin that keeps the Info that it gets for validation."""

    name = "Keeping"
    info: Info

    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        del old, new
        self.info = info
        return [], field.ErrorList()


@pytest.mark.parametrize("version", [V2_1, V2_3])
async def test_validation_builds_the_template_only_when_a_plugin_reads_it(
    client: FakeClient, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, cfg = _Keeping(), defaulted(version)
    pipeline = Framework([JobSetPlugin(client), Torch(), keeping])
    served = core.TrainingRuntime(pipeline, client, cfg)
    spec = (await client.get(ClusterTrainingRuntime, ("", "runtime"))).spec
    train_job = make_train_job("team-a", "job", trainer=Trainer(num_nodes=3))
    decoded: list[type[Struct]] = []
    decode = Struct.from_json.__func__  # type: ignore[attr-defined]  # the function under the class method

    def counting(cls: type[Struct], data: bytes | str) -> Any:
        decoded.append(cls)
        return decode(cls, data)

    monkeypatch.setattr(Struct, "from_json", classmethod(counting))
    assert await served.validate_against(spec, None, train_job) == ([], [])
    assert decoded == []
    # Reading the template decodes a copy of the runtime's.
    (pod_set,) = keeping.info.template_spec.pod_sets
    assert (pod_set.name, pod_set.count) == ("node", 2)
    copy = template_spec_apply(keeping.info, JobSetSpec)
    assert copy is not spec.template.spec
    assert copy is not None
    assert [job.name for job in copy.replicated_jobs or ()] == ["node"]
    assert decoded == [JobSetSpec]


async def test_a_missing_runtime_is_told_with_its_cause(client: FakeClient) -> None:
    made = await core.new(client, client)
    train_job = make_train_job("team-b", "job", runtime_kind="TrainingRuntime")

    with pytest.raises(core.RuntimeNotFoundError) as raised:
        await runtime_for(made, train_job.spec.runtime_ref).new_objects(train_job)

    assert isinstance(raised.value.__cause__, NotFoundError)


async def test_a_job_set_that_runs_is_left_alone_until_the_train_job_is_suspended(client: FakeClient) -> None:
    client.add(make_job_set("team-a", "job", suspend=False))
    made = await core.new(client, client)
    running, suspended = make_train_job("team-a", "job"), make_train_job("team-a", "job", suspend=True)

    assert await runtime_for(made, running.spec.runtime_ref).new_objects(running) == []
    assert len(await runtime_for(made, suspended.spec.runtime_ref).new_objects(suspended)) == 1


async def test_endpoints_follow_the_count(client: FakeClient) -> None:
    served = (await core.new(client, client))[core.TRAINING_RUNTIME_GROUP_KIND]
    assert isinstance(served, core.TrainingRuntime)
    spec = make_training_runtime_spec(ml_policy=MLPolicy(num_nodes=2))

    job = make_train_job("a", "job")
    info = served.runtime_info(job, spec.template, spec.ml_policy, spec.pod_group_policy)

    pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
    assert pod_set is not None
    assert list(pod_set.endpoints) == ["job-node-0-0.job", "job-node-0-1.job"]
    pod_set.count = 1
    assert list(pod_set.endpoints) == ["job-node-0-0.job"]


async def test_only_templates_of_job_sets_are_supported(client: FakeClient) -> None:
    spec = make_training_runtime_spec()
    for served in (await core.new(client, client)).values():
        with pytest.raises(UnsupportedTemplateError, match=r"^unsupported runtimeTemplateSpec$"):
            served.runtime_info(make_train_job("a", "job"), spec, spec.ml_policy, None)
