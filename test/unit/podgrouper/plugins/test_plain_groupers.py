# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groupers that change a thing or two of the default group: deployments, notebooks, jobs and their like."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper import HubOptions
from pkg.podgrouper.plugins import GroupingError


async def test_each_pod_of_a_deployment_is_a_group_that_it_owns(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    deployment = make_object("apps/v1", "Deployment", "web", labels={"kai.scheduler/queue": "q"})
    replica_set = make_object("apps/v1", "ReplicaSet", "web-1", deployment)
    pod = make_pod("web-1-a", replica_set)

    metadata = await group(pod, deployment, replica_set)

    assert (metadata.name, metadata.queue) == ("pg-web-1-a-uid-web-1-a", "q")
    assert metadata.owner.to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-1-a",
        "uid": "uid-web-1-a",
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "priority_class"),
    [
        ("apps/v1", "Deployment", "inference"),
        ("egx.nvidia.io/v1", "SPOTRequest", "inference"),
        ("kubeflow.org/v1beta1", "Notebook", "build"),
        ("apps/v1", "StatefulSet", "train"),
    ],
)
async def test_priority_class_of_the_kind_unless_one_is_named(
    api_version: str, kind: str, priority_class: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    owner = make_object(api_version, kind, "o")
    named = make_object(api_version, kind, "n", labels={"priorityClassName": "gold"})
    gold = make_object("scheduling.k8s.io/v1", "PriorityClass", "gold", namespace="")

    assert (await group(make_pod("p", owner), owner, gold)).priority_class_name == priority_class
    assert (await group(make_pod("p", named), named, gold)).priority_class_name == "gold"


async def test_each_pod_of_a_job_is_a_group_of_the_job(make_object: Any, make_pod: Any, group: Any) -> None:
    job = make_object("batch/v1", "Job", "j", spec={"parallelism": 2})

    metadata = await group(make_pod("j-a", job), job)

    assert (metadata.name, metadata.owner.name, metadata.min_available) == ("pg-j-a-uid-j", "j", 1)


@pytest.mark.parametrize(
    ("parallelism", "legacy"),
    [(1, "pg-j-uid-j"), (2, "pg-j-a-uid-j"), ("2", "pg-j-uid-j"), (None, "pg-j-uid-j")],
)
@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [("batch/v1", "Job", "pg-j-a-uid-j"), ("run.ai/v1", "RunaiJob", "pg-j-uid-j")],
)
async def test_a_group_of_an_older_release_is_kept_where_that_is_asked(
    api_version: str,
    kind: str,
    name: str,
    parallelism: Any,
    legacy: str,
    make_object: Any,
    make_pod: Any,
    make_pod_group: Any,
    group: Any,
) -> None:
    job = make_object(api_version, kind, "j", spec={"parallelism": parallelism})
    pod = make_pod("j-a", job)

    assert (await group(pod, job, make_pod_group(legacy))).name == legacy
    options = HubOptions(search_legacy_pod_groups=False)
    assert (await group(pod, job, make_pod_group(legacy), options=options)).name == name


async def test_pods_of_a_runai_job_share_a_group_by_name_without_the_last_part(
    make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("run.ai/v1", "RunaiJob", "j")

    names = [(await group(make_pod(name, job), job)).name for name in ("j-0-a", "j-0-b", "j")]

    assert names == ["pg-j-0-uid-j", "pg-j-0-uid-j", "pg-j-uid-j"]


async def test_a_cron_jobs_run_is_a_group(make_object: Any, make_pod: Any, group: Any) -> None:
    cron_job = make_object("batch/v1", "CronJob", "nightly", labels={"from": "cron-job"})
    job = make_object("batch/v1", "Job", "nightly-1", cron_job, labels={"from": "job"})

    metadata = await group(make_pod("nightly-1-a", job), cron_job, job)

    assert (metadata.name, metadata.labels) == ("pg-nightly-1-uid-nightly-1", {"from": "job"})


async def test_a_pod_right_below_a_cron_job_is_refused(make_object: Any, make_pod: Any, group: Any) -> None:
    cron_job = make_object("batch/v1", "CronJob", "nightly")

    with pytest.raises(GroupingError, match="no owner reference of type 'Job'"):
        await group(make_pod("p", cron_job), cron_job)


async def test_sparks_pods_are_a_group_by_their_application(make_pod: Any, group: Any) -> None:
    labels = {"spark-app-name": "pi", "spark-app-selector": "spark-1"}

    assert (await group(make_pod("driver", labels=labels))).name == "spark-1"
    assert (await group(make_pod("other", labels={"spark-app-name": "pi"}))).name == "pg-other-uid-other"


@pytest.mark.parametrize(("count", "needed"), [(4, 4), (2**32 + 3, 3), (0, 0)])
async def test_an_aml_job_needs_its_nodes(
    count: int, needed: int, make_object: Any, make_pod: Any, group: Any
) -> None:
    spec = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": count}}}}
    job = make_object("amlarc.azureml.com/v1alpha1", "AmlJob", "a", spec=spec)

    assert (await group(make_pod("p", job), job)).min_available == needed


@pytest.mark.parametrize("envs", [{}, [], None, {"AZUREML_NODE_COUNT": "4"}, {"AZUREML_NODE_COUNT": True}])
async def test_an_aml_job_without_a_count_is_refused(
    envs: Any, make_object: Any, make_pod: Any, group: Any
) -> None:
    job = make_object("amlarc.azureml.com/v1alpha1", "AmlJob", "a", spec={"job": {"options": {"envs": envs}}})

    with pytest.raises(GroupingError, match=r"^azureml envs count not found in spec$"):
        await group(make_pod("p", job), job)
