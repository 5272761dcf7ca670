# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The gang of a TrainJob's pods, in each version of the API."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import ServerError
from controller_runtime.rest import PublishedSchema

from pkg.apis.jobset.v1alpha2 import DependsOn, JobSet, JobSetSpec, ReplicatedJob, StartupPolicy
from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import MLPolicy, PodGroupPolicy, TrainJob
from pkg.runtime import Info, Waiting, template_spec_apply
from pkg.runtime.core import new_runtime_info
from pkg.runtime.framework import PluginError, UnavailableError
from pkg.runtime.framework.plugins.workload import Workload
from pkg.runtime.framework.plugins.workload.served import Served
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

WORKLOAD = PodGroupPolicy.from_dict({"workload": {}})
KINDS: dict[str, type[Object]] = {
    "v1alpha1": v1alpha1.Workload,
    "v1alpha2": v1alpha2.PodGroup,
    "v1beta1": v1beta1.PodGroup,
}
POLICY = {"gang": {"minCount": 3}}
OWNER = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainJob", "name": "job"}
SPECS: dict[str, dict[str, Any]] = {
    "v1alpha1": {"controllerRef": OWNER, "podGroups": [{"name": "gang", "policy": POLICY}]},
    "v1alpha2": {"schedulingPolicy": POLICY},
    "v1beta1": {"schedulingPolicy": POLICY},
}
POD_FIELDS: dict[str, dict[str, Any]] = {
    "v1alpha1": {"workloadRef": {"name": "job", "podGroup": "gang"}},
    "v1alpha2": {"schedulingGroup": {"podGroupName": "job"}},
    "v1beta1": {"schedulingGroup": {"podGroupName": "job"}},
}


def plugin_for(version: str, client: FakeClient | None = None) -> Workload:
    """Return the plugin in a cluster that serves this version, or no gangs."""

    async def published(kind: type[Object], _known: PublishedSchema | None) -> PublishedSchema | None:
        return PublishedSchema("1", {}) if kind in (JobSet, KINDS.get(version)) else None

    return Workload(client or FakeClient(), Served(published))


def node(**changes: Any) -> ReplicatedJob:
    return changed(make_replicated_job("node", ancestor="trainer"), **changes)


def changed(job: ReplicatedJob, **changes: Any) -> ReplicatedJob:
    for name, value in changes.items():
        setattr(job, name, value)
    return job


def info_of(
    train_job: TrainJob, *jobs: ReplicatedJob, policy: PodGroupPolicy | None = WORKLOAD, **spec: Any
) -> Info:
    made = make_training_runtime_spec(
        *(jobs or (node(),)), ml_policy=MLPolicy(num_nodes=3), pod_group_policy=policy
    )
    for name, value in spec.items():
        setattr(made.template.spec, name, value)
    return new_runtime_info(train_job, made.template, made.ml_policy, made.pod_group_policy)


async def built(plugin: Workload, info: Info, train_job: TrainJob) -> list[Object]:
    """Run the plugin's stages as the framework does."""
    assert info.runtime_policy.pod_group_policy is not None
    await plugin.prepare(info.runtime_policy.pod_group_policy)
    plugin.enforce_pod_group_policy(info, train_job)
    return await plugin.build(info, train_job)


def pod_specs(info: Info) -> dict[str, dict[str, Any]]:
    """Return the pod specs in the template, without the containers, by the name of the replicated job."""
    spec = template_spec_apply(info, JobSetSpec)
    assert spec is not None
    found = {job.name: job.template.spec.template.spec.to_dict() for job in spec.replicated_jobs or ()}
    return {
        name: {key: value for key, value in each.items() if key != "containers"}
        for name, each in found.items()
    }


@pytest.mark.parametrize("version", KINDS)
async def test_the_gang_of_each_version_and_the_field_by_which_pods_name_it(version: str) -> None:
    train_job = make_train_job("team-a", "job", uid="u")
    info = info_of(train_job)

    (gang,) = await built(plugin_for(version), info, train_job)

    wire = gang.to_dict()
    assert wire["apiVersion"] == f"scheduling.k8s.io/{version}"
    assert (type(gang), wire["metadata"]["name"], wire["spec"]) == (KINDS[version], "job", SPECS[version])
    assert [owner["uid"] for owner in wire["metadata"]["ownerReferences"]] == ["u"]
    assert pod_specs(info) == {"node": POD_FIELDS[version]}


async def test_only_v1beta1_has_the_priority_class_of_the_pods() -> None:
    train_job = make_train_job("team-a", "job")
    jobs = make_replicated_job("node", ancestor="trainer", priority_class_name="high")
    for version, priority in (("v1alpha2", None), ("v1beta1", "high")):
        (gang,) = await built(plugin_for(version), info_of(train_job, jobs), train_job)
        assert gang.to_dict()["spec"].get("priorityClassName") == priority


def launcher(**changes: Any) -> ReplicatedJob:
    return changed(make_replicated_job("launcher", ancestor="trainer", container="node"), **changes)


def workers(replicas: int = 1) -> ReplicatedJob:
    job = changed(make_replicated_job("workers"), replicas=replicas)
    job.template.spec.parallelism = 4
    return job


READY = [DependsOn(name="workers", status="Ready")]
INITIALIZED = [DependsOn(name="dataset-initializer", status="Complete")]
INITIALIZER = ("dataset-initializer", "model-initializer")


@pytest.mark.parametrize(
    ("jobs", "spec", "count", "members"),
    [
        pytest.param([workers(), launcher()], {}, 4 + 3, {"workers", "launcher"}, id="launcher and nodes"),
        pytest.param([workers(2), launcher()], {}, 8 + 3, {"workers", "launcher"}, id="every replica"),
        pytest.param(
            [
                *(make_replicated_job(name, ancestor=name) for name in INITIALIZER),
                node(depends_on=INITIALIZED),
            ],
            {},
            3,
            {"node"},
            id="initializers are not members",
        ),
        pytest.param(
            [
                make_replicated_job("download"),
                node(depends_on=[DependsOn(name="download", status="Complete")]),
            ],
            {},
            3,
            {"node"},
            id="a job that runs to completion before is not a member",
        ),
        pytest.param(
            [workers(), launcher(depends_on=READY)],
            {},
            4,
            {"workers", "launcher"},
            id="a launcher that waits for its nodes is not counted",
        ),
        pytest.param(
            [workers(), launcher()],
            {"startup_policy": StartupPolicy(startup_policy_order="InOrder")},
            4,
            {"workers", "launcher"},
            id="in order, only the first job is counted",
        ),
    ],
)
async def test_the_members_and_how_many_of_them_start_together(
    jobs: list[ReplicatedJob], spec: dict[str, Any], count: int, members: set[str]
) -> None:
    train_job = make_train_job("team-a", "job")
    info = info_of(train_job, *jobs, **spec)

    (gang,) = await built(plugin_for("v1beta1"), info, train_job)

    assert gang.to_dict()["spec"]["schedulingPolicy"]["gang"]["minCount"] == count
    assert {name for name, pod in pod_specs(info).items() if "schedulingGroup" in pod} == members


@pytest.mark.parametrize(
    ("suspend", "exists", "writes"),
    [(False, False, True), (True, False, True), (True, True, True), (False, True, False)],
)
async def test_a_gang_is_rewritten_only_while_its_job_is_suspended(
    suspend: bool, exists: bool, writes: bool
) -> None:
    train_job = make_train_job("team-a", "job", suspend=suspend)
    live = v1beta1.PodGroup.from_dict({"metadata": {"namespace": "team-a", "name": "job"}})
    plugin = plugin_for("v1beta1", FakeClient(*[live] if exists else []))
    assert bool(await built(plugin, info_of(train_job), train_job)) is writes


async def test_without_the_api_nothing_is_built_and_the_reason_is_raised() -> None:
    train_job = make_train_job("team-a", "job")
    info = info_of(train_job)
    with pytest.raises(UnavailableError, match="serves no gangs") as caught:
        await built(plugin_for("none"), info, train_job)
    assert caught.value.reason == "GangAPINotServed"
    assert pod_specs(info) == {"node": {}}


async def test_a_running_job_does_not_mind_that_the_api_has_disappeared() -> None:
    train_job = make_train_job("team-a", "job")
    running = JobSet.from_dict({"metadata": {"namespace": "team-a", "name": "job"}, "spec": {}})
    assert await built(plugin_for("none", FakeClient(running)), info_of(train_job), train_job) == []


@pytest.mark.parametrize("policy", [None, PodGroupPolicy(), PodGroupPolicy.from_dict({"volcano": {}})])
async def test_other_policies_are_left_alone(policy: PodGroupPolicy | None) -> None:
    train_job = make_train_job("team-a", "job")
    plugin, info = plugin_for("v1beta1"), info_of(train_job, policy=policy)
    plugin.enforce_pod_group_policy(info, train_job)
    assert await plugin.build(info, train_job) == []
    assert await plugin.validate(info, None, train_job) == ([], [])
    assert plugin.why_skipped(info, train_job) == "the runtime has no podGroupPolicy.workload"
    assert pod_specs(info) == {"node": {}}


@pytest.mark.parametrize("other", ["coscheduling", "volcano"])
async def test_two_schedulers_of_one_gang_are_refused(other: str) -> None:
    train_job = make_train_job("team-a", "job")
    info = info_of(train_job, policy=PodGroupPolicy.from_dict({"workload": {}, other: {}}))
    _, errors = await plugin_for("v1beta1").validate(info, None, train_job)
    assert f"podGroupPolicy.workload and podGroupPolicy.{other} exclude each other" in str(errors[0])
    with pytest.raises(PluginError, match="exclude each other"):
        await built(plugin_for("v1beta1"), info, train_job)


async def test_more_pods_than_a_gang_can_have_are_refused() -> None:
    train_job = make_train_job("team-a", "job")
    _, errors = await plugin_for("v1beta1").validate(
        info_of(train_job, workers(2**31 - 1), launcher()), None, train_job
    )
    assert "a gang must have 1 to 2147483647 pods, not 8589934591" in str(errors[0])


async def test_a_cluster_without_gangs_is_a_warning_at_admission() -> None:
    train_job = make_train_job("team-a", "job")
    warnings, errors = await plugin_for("none").validate(info_of(train_job), None, train_job)
    assert len(warnings) == 1
    assert "serves no gangs" in warnings[0]
    assert errors == []


async def test_a_train_job_is_admitted_while_it_is_unknown_whether_the_cluster_has_gangs() -> None:
    async def fail(_kind: object, _known: object) -> PublishedSchema:
        raise ServerError("unavailable", code=503)

    train_job = make_train_job("team-a", "job")
    plugin = Workload(FakeClient(), Served(fail))
    assert await plugin.validate(info_of(train_job), None, train_job) == ([], [])


@pytest.mark.parametrize(
    ("version", "condition"), [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")]
)
@pytest.mark.parametrize(
    ("status", "waiting"), [("False", Waiting("Unschedulable", "0/4 nodes fit")), ("True", None)]
)
async def test_the_schedulers_condition_is_why_a_gang_waits(
    version: str, condition: str, status: str, waiting: Waiting | None
) -> None:
    train_job = make_train_job("team-a", "job")
    found = {"type": condition, "status": status, "reason": "Unschedulable", "message": "0/4 nodes fit"}
    metadata = {"namespace": "team-a", "name": "job"}
    client = FakeClient(KINDS[version].from_dict({"metadata": metadata, "status": {"conditions": [found]}}))
    plugin = plugin_for(version, client)
    assert await plugin.why_waiting(train_job) is None, "no gang was written, so none is watched"
    await built(plugin, info_of(train_job), train_job)
    assert await plugin.why_waiting(train_job) == waiting
    await client.delete(await client.get(KINDS[version], train_job.key))
    assert await plugin.why_waiting(train_job) is None
