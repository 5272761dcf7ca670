# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.machinery import names

from pkg.podgrouper import Rules
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata
from testkit.grouping import group_of, make_object, make_pod, make_pod_group

GroupJobSet = Callable[..., Awaitable[Metadata]]
ANY_ORDER = {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
AFTER_INIT: dict[str, Any] = {"dependsOn": [{"name": "init", "status": "Complete"}]}


@pytest.fixture
def group_job_set() -> GroupJobSet:
    async def group_job_set(
        *jobs: Any, job: str, groups: Any = (), annotations: Any = None, **spec: Any
    ) -> Metadata:
        spec = {"replicatedJobs": list(jobs), **ANY_ORDER, **spec}
        job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", annotations=annotations, spec=spec)
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": "0"}
        metadata: Metadata = await group_of(
            make_pod("p", job_set, labels=labels), job_set, *groups, rules=Rules.V0_17
        )
        return metadata

    return group_job_set


def _job(name: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 2}}, **more}


async def test_a_job_may_wait_for_another_one_through_a_job_with_a_group_of_its_own(
    group_job_set: GroupJobSet,
) -> None:
    server = _job("server")
    prepare = _job("prepare", dependsOn=[{"name": "server", "status": "Ready"}])
    node = _job("node", dependsOn=[{"name": "prepare", "status": "Complete"}])

    assert (await group_job_set(server, prepare, node, job="server")).min_sub_group == 1
    assert (await group_job_set(_job("prepare"), server, node, job="server")).min_sub_group == 2


def _requiring(number: str, job: dict[str, Any]) -> dict[str, Any]:
    metadata = {"annotations": {"kai.scheduler/batch-min-member": number}}
    return {**job, "template": {**job["template"], "metadata": metadata}}


async def test_a_replica_cannot_require_more_pods_than_its_job_has(group_job_set: GroupJobSet) -> None:
    idle = {"name": "idle", "template": {"spec": {"parallelism": 0}}}

    metadata = await group_job_set(_requiring("9", _job("node")), _requiring("3", idle), job="node")

    assert metadata.min_sub_group == 1
    assert [(each.name, each.min_available) for each in metadata.sub_groups] == [
        ("node", 0),
        ("node-replica-0", 2),
    ]


async def test_replicated_jobs_that_start_in_order_cannot_be_required_at_once(
    group_job_set: GroupJobSet,
) -> None:
    metadata = await group_job_set(
        _job("node"),
        _job("post"),
        job="node",
        annotations={"kai.scheduler/batch-min-member": "2"},
        startupPolicy={"startupPolicyOrder": "InOrder"},
    )

    assert metadata.min_sub_group == 1


async def test_the_name_of_a_subgroup_fits_into_the_label_of_its_pods(group_job_set: GroupJobSet) -> None:
    name = "n" * 56  # with its index, the name of a Job of this JobSet has 61 characters

    metadata = await group_job_set(_job(name, 2), job=name)

    job, *replicas = metadata.sub_groups
    assert (job.name, [each.parent for each in replicas]) == (name, [name, name])
    assert len({each.name for each in replicas}) == 2
    assert [names.is_label_value(each.name) for each in replicas] == [[], []]
    assert replicas[0].pods_references == ["p"]


@pytest.mark.parametrize("own", ["a", "a-replica-0", "a-replica-0-x"])
async def test_a_replica_is_a_subgroup_although_a_replicated_job_has_its_name(
    own: str, group_job_set: GroupJobSet
) -> None:
    metadata = await group_job_set(_job("a", 2), _job("a-replica-0"), _job("a-replica-0-x"), job=own)

    parents = {each.name: each.parent for each in metadata.sub_groups}
    assert len(parents) == len(metadata.sub_groups)
    assert [name for name, parent in parents.items() if parent == "a"] == ["a-replica-0-x-x", "a-replica-1"]
    part = metadata.find_sub_group_for_pod("team-a", "p")
    assert part is not None
    assert part.parent == own


@pytest.mark.parametrize(
    ("number", "left_out"), [("parallelism", True), ("completions", True), ("backoffLimit", False)]
)
async def test_a_replicated_job_whose_jobs_have_no_pods_is_not_required(
    number: str, left_out: bool, group_job_set: GroupJobSet
) -> None:
    idle = {"name": "idle", "template": {"spec": {number: 0}}}

    beside = await group_job_set(_job("node"), idle, job="node")
    own = await group_job_set(_job("node"), idle, job="idle")

    assert beside.min_sub_group == (1 if left_out else 2)
    assert [each.name for each in beside.sub_groups if not each.parent] == ["node", "idle"][
        : beside.min_sub_group
    ]
    assert [each.name for each in own.sub_groups if not each.parent] == ["node", "idle"]


async def test_a_replicated_job_on_whose_completion_another_waits_has_its_own_group(
    group_job_set: GroupJobSet,
) -> None:
    jobs = [_job("init"), _job("node", 2, **AFTER_INIT), _job("launcher", **AFTER_INIT)]

    init = await group_job_set(*jobs, job="init")
    node = await group_job_set(*jobs, job="node")

    assert (init.name, init.min_sub_group) == ("pg-js-uid-js-init", 1)
    assert [each.name for each in init.sub_groups] == ["init", "init-replica-0"]
    assert (node.name, node.min_sub_group) == ("pg-js-uid-js", 2)
    assert [each.name for each in node.sub_groups if not each.parent] == ["node", "launcher"]


async def test_of_replicated_jobs_that_wait_for_readiness_one_is_required(group_job_set: GroupJobSet) -> None:
    after_node: dict[str, Any] = {"dependsOn": [{"name": "node", "status": "Ready"}]}

    metadata = await group_job_set(_job("node"), _job("launcher", **after_node), job="node")

    assert (metadata.name, metadata.min_sub_group) == ("pg-js-uid-js", 1)
    assert [each.name for each in metadata.sub_groups if not each.parent] == ["node", "launcher"]


async def test_a_flat_group_of_a_replicated_job_with_a_dependency_stays(group_job_set: GroupJobSet) -> None:
    flat = make_pod_group("pg-js-uid-js-init", minMember=1)

    metadata = await group_job_set(_job("init"), _job("node", **AFTER_INIT), job="init", groups=[flat])

    assert (metadata.name, metadata.min_sub_group, metadata.sub_groups) == ("pg-js-uid-js-init", None, [])


@pytest.mark.parametrize("jobs", [[_job("a", 2**31 - 1)], [_job("a", 9_000), _job("b", 1_001)]])
async def test_more_replicas_than_a_group_may_have_are_refused_before_they_are_built(
    jobs: list[Any], group_job_set: GroupJobSet
) -> None:
    last = len(jobs) - 1
    message = rf"^JobSet team-a/js: replicatedJobs\[{last}\]\.replicas: {jobs[-1]['replicas']} is too large: a pod group has"

    with pytest.raises(GroupingError, match=message):
        await group_job_set(*jobs, job="a")


async def test_as_many_replicas_as_a_group_may_have_are_grouped(group_job_set: GroupJobSet) -> None:
    assert len((await group_job_set(_job("a", 10_000), job="a")).sub_groups) == 10_001


@pytest.mark.parametrize("name", [["a"], {"a": "b"}, 5, "", None])
async def test_a_replicated_job_whose_name_is_not_a_text_is_reported(
    name: Any, group_job_set: GroupJobSet
) -> None:
    with pytest.raises(GroupingError, match=r"^replicatedJobs\[1\] missing name$"):
        await group_job_set(_job("a"), {**_job(""), "name": name}, job="a")


async def test_a_malformed_set_is_reported_before_a_pod_that_names_no_replicated_job(
    group_job_set: GroupJobSet,
) -> None:
    malformed = {"name": "a", "replicas": "two"}

    with pytest.raises(GroupingError, match=r"^failed to read replicatedJob\.replicas: "):
        await group_job_set(malformed, job="")
    with pytest.raises(GroupingError, match=r"missing required label"):
        await group_job_set(_job("a"), job="")
