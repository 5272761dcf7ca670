# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

GroupJobSet = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_job_set(make_object: Any, make_pod: Any, group: Any) -> GroupJobSet:
    async def group_job_set(*replicated_jobs: Any, job: str = "a", **spec: Any) -> Metadata:
        spec = {"replicatedJobs": list(replicated_jobs), **spec}
        job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", spec=spec)
        pod = make_pod("p", job_set, labels={"jobset.sigs.k8s.io/replicatedjob-name": job} if job else {})
        metadata: Metadata = await group(pod, job_set)
        return metadata

    return group_job_set


def _job(name: Any, replicas: Any = None, **spec: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas or 1, "template": {"spec": spec}}


ANY_ORDER = {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}


async def test_in_order_each_replicated_job_is_a_group(group_job_set: GroupJobSet) -> None:
    metadata = await group_job_set(_job("a", 2, parallelism=3), _job("b", 9))

    assert (metadata.name, metadata.min_available) == ("pg-js-uid-js-a", 6)


async def test_in_any_order_the_set_is_one_group(group_job_set: GroupJobSet) -> None:
    metadata = await group_job_set(
        _job("a", 2, parallelism=3), _job("b", 9), "no map", _job("", 5), **ANY_ORDER
    )

    assert (metadata.name, metadata.min_available) == ("pg-js-uid-js", 15)


async def test_a_dependency_between_replicated_jobs_makes_each_a_group(group_job_set: GroupJobSet) -> None:
    node = {**_job("node", 2), "dependsOn": [{"name": "init", "status": "Complete"}]}

    first = await group_job_set(_job("init"), node, job="init", **ANY_ORDER)
    later = await group_job_set(_job("init"), node, job="node", **ANY_ORDER)

    assert (first.name, first.min_available) == ("pg-js-uid-js-init", 1)
    assert (later.name, later.min_available) == ("pg-js-uid-js-node", 2)


async def test_an_empty_list_of_dependencies_is_no_dependency(group_job_set: GroupJobSet) -> None:
    metadata = await group_job_set(_job("a"), {**_job("b"), "dependsOn": []}, **ANY_ORDER)

    assert (metadata.name, metadata.min_available) == ("pg-js-uid-js", 2)


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 4, "completions": 5}, 4),
        ({"parallelism": 4, "completions": 0}, 4),
        ({"parallelism": 0, "completions": 3}, 1),
        ({"parallelism": -1}, 1),
    ],
)
async def test_at_once_run_parallelism_or_fewer_completions(
    spec: dict[str, int], pods: int, group_job_set: GroupJobSet
) -> None:
    assert (await group_job_set(_job("a", **spec))).min_available == pods


@pytest.mark.parametrize("more", [{}, ANY_ORDER])
async def test_without_replicated_jobs_one_pod_is_needed(
    more: dict[str, Any], group_job_set: GroupJobSet
) -> None:
    assert (await group_job_set(**more)).min_available == 1
    assert (await group_job_set(_job(7, 5), **more)).min_available == 1


async def test_a_product_beyond_64_bits_runs_over(group_job_set: GroupJobSet) -> None:
    assert (await group_job_set(_job("a", 2**62, parallelism=4))).min_available == 1


@pytest.mark.parametrize(
    ("replicated_jobs", "more", "message"),
    [
        (
            [_job("a", "2")],
            {},
            r"failed to read replicas from JobSet team-a/js replicatedJob a: \.replicas acc",
        ),
        (
            [_job("a", parallelism=[])],
            {},
            "failed to read template.spec.parallelism from JobSet team-a/js rep",
        ),
        (
            [_job("a", 2**31)],
            {},
            r"minAvailable too large \(2147483648\) for JobSet team-a/js replicatedJob a",
        ),
        ([_job("a", 2**30), _job("b", 2**30)], ANY_ORDER, r"total minAvailable too large \(2147483648\)"),
        ([], {"replicatedJobs": {}}, "failed to read spec.replicatedJobs from JobSet team-a/js: "),
        (
            [],
            {"startupPolicy": 3},
            "failed to read spec.startupPolicy.startupPolicyOrder from JobSet team-a/js",
        ),
    ],
)
async def test_what_is_refused(
    replicated_jobs: list[Any], more: dict[str, Any], message: str, group_job_set: GroupJobSet
) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_job_set(*replicated_jobs, **more)


async def test_a_pod_must_name_its_replicated_job(group_job_set: GroupJobSet) -> None:
    with pytest.raises(GroupingError, match='pod team-a/p missing required label "jobset'):
        await group_job_set(_job("a"), job="")
