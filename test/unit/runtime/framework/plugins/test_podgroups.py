# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.fake import FakeClient

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    PodGroupPolicy,
    VolcanoPodGroupPolicySource,
)
from pkg.runtime import PodSet, new_info
from pkg.runtime.framework.plugins import podgroups
from pkg.runtime.framework.plugins.coscheduling import CoScheduling
from pkg.runtime.framework.plugins.jobset.builder import apply_scheduler
from pkg.runtime.framework.plugins.volcano import Volcano
from testkit.builders import make_train_job

COSCHEDULING = PodGroupPolicy(coscheduling=CoschedulingPodGroupPolicySource())
POLICIES: dict[type, dict[str, Any]] = {
    CoScheduling: {"coscheduling": CoschedulingPodGroupPolicySource()},
    Volcano: {"volcano": VolcanoPodGroupPolicySource()},
}
VOLCANO = PodGroupPolicy(volcano=VolcanoPodGroupPolicySource())


@pytest.mark.parametrize(("plugin", "others"), [(CoScheduling, VOLCANO), (Volcano, COSCHEDULING)])
async def test_without_the_plugins_policy_nothing_is_built_or_read(
    plugin: type[CoScheduling | Volcano], others: PodGroupPolicy
) -> None:
    client = FakeClient()

    for policy in (None, PodGroupPolicy(), others):
        info = new_info(pod_group_policy=policy)
        assert await plugin(client).build(info, make_train_job("team-a", "job")) == []

    assert client.calls == []


def test_the_gang_asks_for_what_all_its_pods_ask_for_together() -> None:
    info = new_info(
        pod_sets=[
            PodSet("a", count=3, single_pod_requests={"cpu": "1500m", "memory": "1Gi"}),
            PodSet("b", count=2, single_pod_requests={"cpu": "250m", "nvidia.com/gpu": "4"}),
        ]
    )

    assert podgroups.total_members(info) == 5
    assert podgroups.total_requests(info) == {"cpu": "5", "memory": "3Gi", "nvidia.com/gpu": "8"}


READY, COMPLETE = "Ready", "Complete"


@pytest.mark.parametrize("plugin", [CoScheduling, Volcano])
@pytest.mark.parametrize(
    ("jobs", "needed", "members"),
    [
        pytest.param({"a": (), "b": ()}, "ab", "ab", id="all start at once"),
        pytest.param({"a": (), "b": ("a", READY)}, "a", "ab", id="a launcher after its nodes"),
        pytest.param({"a": (), "b": ("a", COMPLETE)}, "b", "b", id="a trainer after its initializer"),
        pytest.param(
            {"a": (), "b": ("a", COMPLETE), "c": ("b", READY)}, "b", "bc", id="initializer, nodes, launcher"
        ),
        pytest.param({"a": (), "b": ("a", READY), "c": ("b", READY)}, "a", "abc", id="a chain"),
        pytest.param(
            {"a": (), "b": ("a", READY), "c": ("b", COMPLETE)}, "a", "ac", id="a chain through no member"
        ),
    ],
)
async def test_the_gang_waits_only_for_pods_that_can_exist_at_the_same_time(
    jobs: dict[str, tuple[str, str] | tuple[()]],
    needed: str,
    members: str,
    plugin: type[CoScheduling | Volcano],
) -> None:
    counts = {"a": 1, "b": 2, "c": 4}
    replicated: list[dict[str, Any]] = [
        {
            "name": name,
            "dependsOn": [{"name": on[0], "status": on[1]}] if on else None,
            "template": {"spec": {"template": {"spec": {"containers": []}}}},
        }
        for name, on in jobs.items()
    ]
    spec = JobSetSpec.from_dict({"replicatedJobs": replicated})
    sets = [PodSet(name, count=counts[name], single_pod_requests={"cpu": "1"}) for name in jobs]
    info = new_info(
        template_spec_obj_apply=spec, pod_sets=sets, pod_group_policy=PodGroupPolicy(**POLICIES[plugin])
    )
    train_job = make_train_job("team-a", "job")

    (group,) = await plugin(FakeClient()).build(info, train_job)
    plugin(FakeClient()).enforce_pod_group_policy(info, train_job)
    apply_scheduler(spec.replicated_jobs or [], info.scheduler)

    total = sum(counts[name] for name in needed)
    group_spec = group.to_dict()["spec"]
    assert (group_spec["minMember"], group_spec["minResources"]) == (total, {"cpu": str(total)})
    marked = [job.name for job in spec.replicated_jobs or () if job.template.spec.template.metadata]
    assert "".join(marked) == members


async def test_of_jobs_that_start_in_order_the_gang_waits_for_the_first() -> None:
    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    spec = JobSetSpec.from_dict({"replicatedJobs": [{"name": "a"}, {"name": "b"}], **order})
    info = new_info(template_spec_obj_apply=spec, pod_sets=[PodSet("a", count=2), PodSet("b", count=3)])

    assert podgroups.total_members(info) == 2


def test_pods_that_ask_for_nothing_make_a_gang_that_asks_for_nothing() -> None:
    assert podgroups.total_requests(new_info(pod_sets=[PodSet("a", count=3)])) == {}


def test_no_pods_ask_for_zero() -> None:
    info = new_info(pod_sets=[PodSet("a", count=0, single_pod_requests={"memory": "1Gi"})])

    assert podgroups.total_requests(info) == {"memory": "0"}


def test_a_sum_of_zero_and_more_keeps_the_suffix_of_what_is_more() -> None:
    sets = [
        PodSet("a", count=0, single_pod_requests={"memory": "1G"}),
        PodSet("b", count=2, single_pod_requests={"memory": "1Gi"}),
    ]

    assert podgroups.total_requests(new_info(pod_sets=sets)) == {"memory": "2Gi"}
