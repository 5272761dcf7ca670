# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import (
    CoschedulingPodGroupPolicySource,
    PodGroupPolicy,
    VolcanoPodGroupPolicySource,
)
from pkg.runtime.framework.plugins import podgroups
from pkg.runtime.framework.plugins.coscheduling import CoScheduling
from pkg.runtime.framework.plugins.volcano import Volcano
from pkg.runtime.runtime import PodSet, new_info
from testkit.builders import make_train_job

COSCHEDULING = PodGroupPolicy(coscheduling=CoschedulingPodGroupPolicySource())
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
