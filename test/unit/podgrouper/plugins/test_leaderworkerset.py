# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import Rules
from testkit.grouping import group_of, make_object, make_pod, sub_group_of

LEADER, POLICY = "leaderworkerset.sigs.k8s.io/worker-index", "subGroupPolicyType"


@pytest.mark.parametrize(("worker", "needed"), [("0", 1), ("00", 3)])
async def test_while_the_leader_gets_ready_only_index_0_is_the_leader(worker: str, needed: int) -> None:
    spec = {"leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
    pod = make_pod("p", lws, labels={"leaderworkerset.sigs.k8s.io/worker-index": worker})

    assert (await group_of(pod, lws)).min_available == needed


def _segmented(size: int, policy: str, **spec: Any) -> Any:
    template = {"size": size, "subGroupPolicy": {"subGroupSize": 2, POLICY: policy}}
    spec = {"leaderWorkerTemplate": template, **spec}
    return make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("policy", ["LeaderWorker", "LeaderExcluded"])
@pytest.mark.parametrize("size", [3, 5])
async def test_the_subgroups_require_no_more_pods_than_the_replica_has(
    size: int, policy: str, rules: Rules
) -> None:
    lws = _segmented(size, policy)

    metadata = await group_of(make_pod("p", lws, labels={LEADER: "0"}), lws, rules=rules)

    parents = {each.parent for each in metadata.sub_groups}
    leaves = [each for each in metadata.sub_groups if each.name not in parents]
    assert sum(each.min_available for each in leaves) == metadata.min_available == size
    assert all(each.min_available <= size for each in metadata.sub_groups)


@pytest.mark.parametrize("policy", ["LeaderWorker", "LeaderExcluded"])
async def test_a_leader_that_gets_ready_alone_has_no_segments_yet(policy: str) -> None:
    lws = _segmented(5, policy, startupPolicy="LeaderReady")

    alone = await group_of(make_pod("p", lws, labels={LEADER: "0"}), lws)
    bound = await group_of(make_pod("p", lws, labels={LEADER: "0"}, spec={"nodeName": "n"}), lws)

    assert [(each.name, each.min_available) for each in alone.sub_groups] == [("leader", 1)]
    assert sub_group_of(alone) == "leader"
    assert sub_group_of(bound) == "leader"
    assert bound.min_available == 5


async def test_a_replica_keeps_its_size_until_it_is_created_again() -> None:
    spec = {"leaderWorkerTemplate": {"size": 8}}
    lws = make_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec)
    annotations = {"leaderworkerset.sigs.k8s.io/size": "4"}

    metadata = await group_of(make_pod("p", lws, labels={LEADER: "1"}, annotations=annotations), lws)

    assert metadata.min_available == 4
