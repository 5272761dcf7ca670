# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import anyio.lowlevel
import pytest
from controller_runtime.apis.core.v1 import EnvVar, ResourceRequirements, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import FieldIndexer, Reader
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, field

from pkg import config
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet, JobSetSpec
from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    FluxMLPolicySource,
    JAXMLPolicySource,
    MLPolicy,
    MPIMLPolicySource,
    PodGroupPolicy,
    TorchMLPolicySource,
    Trainer,
    TrainJob,
    TrainJobStatus,
    VolcanoPodGroupPolicySource,
    XGBoostMLPolicySource,
)
from pkg.runtime import Info, new_info, template_spec_apply
from pkg.runtime import core as runtimes
from pkg.runtime.framework import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    Plugin,
    TrainJobStatusPlugin,
    core,
)
from pkg.runtime.framework.plugins import registry
from pkg.util import trainjob
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

SPECS = {
    "plain": make_training_runtime_spec(ml_policy=MLPolicy(num_nodes=2)),
    "torch": make_training_runtime_spec(
        make_replicated_job("dataset-initializer", ancestor="dataset-initializer"),
        make_replicated_job("node", ancestor="trainer", env={"A": "1"}),
        ml_policy=MLPolicy(num_nodes=2, torch=TorchMLPolicySource(num_proc_per_node="auto")),
    ),
    "gangs": make_training_runtime_spec(
        make_replicated_job(
            "node",
            ancestor="trainer",
            resources=ResourceRequirements(requests={"cpu": "500m"}),
            priority_class_name="high",
        ),
        ml_policy=MLPolicy(num_nodes=2),
        pod_group_policy=PodGroupPolicy(
            coscheduling=CoschedulingPodGroupPolicySource(), volcano=VolcanoPodGroupPolicySource()
        ),
        annotations={"scheduling.volcano.sh/queue-name": ""},
    ),
    "jax": make_training_runtime_spec(
        make_replicated_job("node", ancestor="trainer"), ml_policy=MLPolicy(jax=JAXMLPolicySource())
    ),
    "xgboost": make_training_runtime_spec(
        make_replicated_job("node", ancestor="trainer"), ml_policy=MLPolicy(xgboost=XGBoostMLPolicySource())
    ),
    "flux": make_training_runtime_spec(
        make_replicated_job("node", ancestor="trainer"), ml_policy=MLPolicy(flux=FluxMLPolicySource())
    ),
    "mpi": make_training_runtime_spec(
        make_replicated_job("launcher", ancestor="trainer", container="node"),
        make_replicated_job("node"),
        ml_policy=MLPolicy(mpi=MPIMLPolicySource(run_launcher_as_node=True)),
    ),
}


@pytest.fixture
def train_job() -> TrainJob:
    resources = ResourceRequirements(limits={"nvidia.com/gpu": "4"})
    trainer = Trainer(
        num_nodes=3, env=[EnvVar(name="B", value="2")], num_proc_per_node=2, resources_per_node=resources
    )
    return make_train_job("team-a", "job", trainer=trainer)


async def outcome(plugins: Sequence[Plugin], spec: str, train_job: TrainJob, client: FakeClient) -> str:
    await anyio.lowlevel.checkpoint()  # lets other tasks run: there are many orders
    runtime = runtimes.TrainingRuntime(core.Framework(plugins), client)
    objects = await runtime.objects_from(SPECS[spec], train_job)
    _, errors = await runtime.validate_against(SPECS[spec], None, train_job)
    return json.dumps(
        [sorted(json.dumps(o.to_dict(), sort_keys=True) for o in objects), sorted(map(str, errors))]
    )


@pytest.mark.parametrize("spec", SPECS)
async def test_the_order_of_plugins_does_not_matter(spec: str, train_job: TrainJob) -> None:
    # With these Secrets stored, no plugin generates random keys.
    keys = [
        Secret(metadata=ObjectMeta(namespace="team-a", name=f"job-{suffix}"))
        for suffix in ("mpi-ssh-auth", "flux-curve")
    ]
    for secret in keys:
        secret.metadata.owner_references = [trainjob.controller_reference(train_job)]
    client = FakeClient(*keys)
    made = [await factory(client, client) for factory in registry.new_registry(found=()).values()]

    # If the order matters, it matters for two of the nine plugins: each pair is tried in both orders, first and last.
    orders = [made, made[::-1]]
    for first, second in itertools.permutations(range(len(made)), 2):
        order = [plugin for index, plugin in enumerate(made) if index not in (first, second)]
        orders += [[made[first], made[second], *order], [*order, made[first], made[second]]]
    outcomes = {await outcome(order, spec, train_job, client) for order in orders}

    assert len(outcomes) == 1


async def test_the_indices_of_runtime_classes_are_registered() -> None:
    client = FakeClient()

    await core.new(client, {}, client)

    with pytest.raises(ValueError, match="index named"):
        await core.new(client, {}, client)


class Configured(Plugin):
    name = "Configured"
    cfg: Configuration | None = None

    def configure(self, cfg: Configuration) -> None:
        self.cfg = cfg


async def test_each_plugin_receives_the_configuration() -> None:
    plugin, client = Configured(), FakeClient()

    async def factory(_reader: Reader, _indexer: FieldIndexer) -> Plugin:
        return plugin

    cfg = Configuration(compatibility_version="2.3")
    await core.new(client, {"Configured": factory}, client, cfg)
    assert plugin.cfg is cfg

    await core.new(FakeClient(), {"Configured": factory}, FakeClient())
    assert plugin.cfg == config.load()


class Nodes(EnforceMLPolicyPlugin):
    name = "Nodes"

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        del train_job
        info.template_spec.pod_sets[0].count += 1


class Counts(ComponentBuilderPlugin):
    name = "Counts"
    counts: list[int | None] | None = None

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        del train_job
        spec = template_spec_apply(info, JobSetSpec)
        self.counts = [job.template.spec.parallelism for job in (spec and spec.replicated_jobs) or ()]
        return []


async def test_the_template_has_the_counts_of_the_pod_sets_before_the_first_plugin_builds(
    train_job: TrainJob,
) -> None:
    client, counts = FakeClient(), Counts()
    job_set = await registry.new_registry(found=())["JobSet"](client, client)
    served = runtimes.TrainingRuntime(core.Framework([counts, job_set, Nodes()]), client)

    (built,) = await served.objects_from(SPECS["plain"], train_job)

    assert isinstance(built, JobSet)
    assert counts.counts == [3]
    assert [job.template.spec.completions for job in built.spec.replicated_jobs or ()] == [3]


class Fabric(CustomValidationPlugin, EnforceMLPolicyPlugin, ComponentBuilderPlugin):
    name = "Fabric"
    serves = "mlPolicy.torch"

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        del info, old, new
        self.calls.append("validate")
        return [], field.ErrorList()

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        del info, train_job
        self.calls.append("enforce")

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        del info, train_job
        self.calls.append("build")
        return []


@pytest.mark.parametrize(("policy", "calls"), [("plain", []), ("torch", ["validate", "enforce", "build"])])
async def test_a_plugin_is_called_only_for_runtimes_with_the_policy_that_it_serves(
    train_job: TrainJob, policy: str, calls: list[str]
) -> None:
    fabric = Fabric()
    runtime = runtimes.TrainingRuntime(core.Framework([fabric]), FakeClient())
    await runtime.validate_against(SPECS[policy], None, train_job)
    await runtime.objects_from(SPECS[policy], train_job)
    assert fabric.calls == calls
    reason = fabric.why_skipped(new_info(ml_policy=SPECS[policy].ml_policy), train_job)
    assert reason == (None if calls else "the runtime has no mlPolicy.torch")


class Reporter(TrainJobStatusPlugin):
    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc] # two plugins of one class need two names

    async def status(self, train_job: TrainJob) -> TrainJobStatus | None:
        return train_job.status


async def test_at_most_one_plugin_reports_the_status(train_job: TrainJob) -> None:
    assert await core.Framework([]).run_train_job_status_plugin(train_job) is None
    assert await core.Framework([Reporter("a")]).run_train_job_status_plugin(train_job) is train_job.status
    with pytest.raises(core.TooManyTrainJobStatusPluginsError, match=r"registered: a, b$"):
        core.Framework([Reporter("a"), Reporter("b")])
