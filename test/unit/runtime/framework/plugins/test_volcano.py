# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pytest
from controller_runtime.apis.core.v1 import ResourceRequirements
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import CacheDegradedError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    MLPolicy,
    PodGroupPolicy,
    TrainJob,
    VolcanoPodGroupPolicySource,
)
from pkg.apis.volcano.v1beta1 import NetworkTopologySpec, PodGroup
from pkg.runtime.core.runtimeinfo import new_runtime_info
from pkg.runtime.framework.plugins.volcano import Volcano
from pkg.runtime.runtime import Info
from testkit.builders import make_replicated_job, make_train_job, make_training_runtime_spec

QUEUE = "scheduling.volcano.sh/queue-name"
VOLCANO = PodGroupPolicy(volcano=VolcanoPodGroupPolicySource())


def info_of(
    train_job: TrainJob,
    *priority_classes: str | None,
    policy: PodGroupPolicy | None = VOLCANO,
    annotations: Mapping[str, str] | None = None,
) -> Info:
    resources = ResourceRequirements(requests={"cpu": "1500m"})
    jobs = [
        make_replicated_job(f"job-{number}", resources=resources, priority_class_name=name)
        for number, name in enumerate(priority_classes)
    ]
    node = make_replicated_job("node", ancestor="trainer", resources=resources)
    spec = make_training_runtime_spec(
        *jobs, node, ml_policy=MLPolicy(num_nodes=2), pod_group_policy=policy, annotations=annotations
    )
    return new_runtime_info(train_job, spec)


def priority_class(name: str) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=1)


@pytest.fixture
def train_job() -> TrainJob:
    return make_train_job("team-a", "job", uid="u")


async def test_the_pod_group_holds_all_pods_and_belongs_to_the_job(train_job: TrainJob) -> None:
    (group,) = await Volcano(FakeClient()).build(info_of(train_job), train_job)

    wire = group.to_dict()
    owner = wire["metadata"].pop("ownerReferences")[0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainJob", "u", True)
    assert wire == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "job", "namespace": "team-a"},
        "spec": {"minMember": 2, "minResources": {"cpu": "3"}},
    }


@pytest.mark.parametrize(
    ("of_job", "of_runtime", "queue"),
    [(None, {QUEUE: "a"}, "a"), ({QUEUE: "b"}, {QUEUE: "a"}, "b"), (None, None, None)],
)
async def test_the_queue_is_the_jobs_before_the_runtimes(
    of_job: Mapping[str, str] | None, of_runtime: Mapping[str, str] | None, queue: str | None
) -> None:
    train_job = make_train_job("team-a", "job", annotations=of_job)

    (group,) = await Volcano(FakeClient()).build(info_of(train_job, annotations=of_runtime), train_job)

    assert group.to_dict()["spec"].get("queue") == queue


async def test_the_last_priority_class_is_the_groups(train_job: TrainJob) -> None:
    (group,) = await Volcano(FakeClient()).build(info_of(train_job, "low", "high", None), train_job)

    assert group.to_dict()["spec"]["priorityClassName"] == "high"


async def test_the_network_topology_is_the_policys(train_job: TrainJob) -> None:
    topology = NetworkTopologySpec(mode="soft", highest_tier_allowed=3)
    policy = PodGroupPolicy(volcano=VolcanoPodGroupPolicySource(network_topology=topology))

    (group,) = await Volcano(FakeClient()).build(info_of(train_job, policy=policy), train_job)

    assert group.to_dict()["spec"]["networkTopology"] == {"mode": "soft", "highestTierAllowed": 3}


@pytest.mark.parametrize(("suspend", "built"), [(True, True), (False, False)])
async def test_a_pod_group_that_exists_is_rewritten_only_while_its_job_is_suspended(
    suspend: bool, built: bool
) -> None:
    train_job = make_train_job("team-a", "job", suspend=suspend)
    present = PodGroup(metadata=ObjectMeta(namespace="team-a", name="job"))

    assert bool(await Volcano(FakeClient(present)).build(info_of(train_job), train_job)) is built


def test_every_pod_is_annotated_with_the_group(train_job: TrainJob) -> None:
    info = info_of(train_job)

    Volcano(FakeClient()).enforce_pod_group_policy(info, train_job)

    assert info.scheduler.pod_annotations == {"scheduling.k8s.io/group-name": "job"}
    assert info.scheduler.pod_labels == {}


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(None, id="no policy"),
        pytest.param(PodGroupPolicy(), id="empty policy"),
        pytest.param(
            PodGroupPolicy(coscheduling=CoschedulingPodGroupPolicySource()), id="coscheduling's policy"
        ),
    ],
)
async def test_without_a_volcano_policy_nothing_happens(
    policy: PodGroupPolicy | None, train_job: TrainJob
) -> None:
    client = FakeClient()
    info = info_of(train_job, "missing", policy=policy, annotations={QUEUE: ""})
    plugin = Volcano(client)

    plugin.enforce_pod_group_policy(info, train_job)

    assert await plugin.build(info, train_job) == []
    assert await plugin.validate(info, None, train_job) == ([], [])
    assert info.scheduler.pod_annotations == {}
    assert client.calls == []


async def errors_of(plugin: Volcano, info: Info, train_job: TrainJob) -> list[str]:
    warnings, errors = await plugin.validate(info, None, train_job)
    assert warnings == []
    return [str(error) for error in errors]


def missing(name: str, why: str | None = None) -> str:
    why = why or f'priorityclasses.scheduling.k8s.io "{name}" not found'
    return (
        f'spec.templateSpec.priorityClassName: Invalid value: "{name}": '
        f'PriorityClass "{name}" doesn\'t exist: {why}'
    )


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        pytest.param([None], [], id="none"),
        pytest.param(["here"], [], id="one that exists"),
        pytest.param(["a", "here", "b"], [missing("a"), missing("b")], id="two that do not"),
        pytest.param(
            ["a", "system-node-critical", "b"], [missing("a")], id="none after one that every cluster has"
        ),
        pytest.param(["system-cluster-critical"], [], id="only one that every cluster has"),
    ],
)
async def test_priority_classes_must_exist(
    named: list[str | None], wanted: list[str], train_job: TrainJob
) -> None:
    plugin = Volcano(FakeClient(priority_class("here")))

    assert await errors_of(plugin, info_of(train_job, *named), train_job) == wanted


async def test_a_priority_class_that_many_jobs_name_is_looked_up_once(train_job: TrainJob) -> None:
    client = FakeClient()

    assert await errors_of(Volcano(client), info_of(train_job, *["a"] * 5), train_job) == [missing("a")] * 5
    assert len(client.calls) == 1


async def test_the_name_of_a_priority_class_is_quoted(train_job: TrainJob) -> None:
    (error,) = await errors_of(Volcano(FakeClient()), info_of(train_job, "a\nb"), train_job)

    assert error.endswith(
        'PriorityClass "a\\nb" doesn\'t exist: priorityclasses.scheduling.k8s.io "a\\nb" not found'
    )


async def test_an_empty_queue_is_refused(train_job: TrainJob) -> None:
    info = info_of(train_job, annotations={QUEUE: ""})

    assert await errors_of(Volcano(FakeClient()), info, train_job) == [
        f'spec.annotations[{QUEUE}]: Invalid value: "": Volcano queue name must not be empty'
    ]


async def test_priority_classes_that_may_not_be_read_count_as_missing(train_job: TrainJob) -> None:
    async def denied(*_args: object) -> NoReturn:
        raise CacheDegradedError(PriorityClass.gvk, "denied")

    client = interceptor.wrap(FakeClient(), interceptor.Funcs(get=denied))

    assert await errors_of(Volcano(client), info_of(train_job, "a"), train_job) == [
        missing("a", "PriorityClass.scheduling.k8s.io: denied")
    ]
