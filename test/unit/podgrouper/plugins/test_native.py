# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that name a gang of Kubernetes' own scheduling API."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import NoKindMatchError

from pkg.podgrouper import Rules
from pkg.podgrouper.plugins import GroupingError
from testkit.grouping import group_of, make_object, make_pod, pod_grouper, refusing

IN_GROUP = {"schedulingGroup": {"podGroupName": "gang"}}
IN_WORKLOAD = {"workloadRef": {"name": "w", "podGroup": "nodes"}}


def native(version: str = "v1beta1", policy: Any = None) -> Any:
    policy = {"gang": {"minCount": 4}} if policy is None else policy
    return make_object(f"scheduling.k8s.io/{version}", "PodGroup", "gang", spec={"schedulingPolicy": policy})


@pytest.fixture
def train_job() -> Any:
    labels = {"kai.scheduler/queue": "q", "kai.scheduler/preemptibility": "non-preemptible"}
    return make_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm", labels=labels)


@pytest.mark.parametrize("rules", Rules)
async def test_a_pod_group_is_one_group_with_queue_and_labels_of_the_top_owner(
    rules: Rules, train_job: Any
) -> None:
    job_set = make_object("jobset.x-k8s.io/v1alpha2", "JobSet", "llm-js", train_job, spec={})
    pod = make_pod("p", job_set, spec=IN_GROUP)

    metadata = await group_of(pod, train_job, job_set, native(), rules=rules)

    assert (metadata.name, metadata.min_available) == ("pg-gang-uid-gang", 4)
    assert (metadata.queue, metadata.preemptibility) == ("q", "non-preemptible")
    assert metadata.labels == train_job.labels
    assert (metadata.owner.kind, metadata.owner.api_version) == ("PodGroup", "scheduling.k8s.io/v1beta1")
    assert metadata.sub_groups == []


@pytest.mark.parametrize("replica", ["", "r-1"])
async def test_each_pod_group_of_a_workload_and_each_replica_of_it_is_a_group(replica: str) -> None:
    groups = [
        {"name": "launcher", "policy": {"basic": {}}},
        {"name": "nodes", "policy": {"gang": {"minCount": 3}}},
    ]
    workload = make_object("scheduling.k8s.io/v1alpha1", "Workload", "w", spec={"podGroups": groups})
    reference = {**IN_WORKLOAD["workloadRef"], **({"podGroupReplicaKey": replica} if replica else {})}

    metadata = await group_of(make_pod("p", spec={"workloadRef": reference}), workload)

    suffix = f"-{replica}" if replica else ""
    assert (metadata.name, metadata.min_available) == (f"pg-w-nodes{suffix}-uid-w", 3)


async def test_the_basic_policy_requires_one_pod() -> None:
    metadata = await group_of(make_pod("p", spec=IN_GROUP), native(policy={"basic": {}}))

    assert metadata.min_available == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (IN_GROUP, r"names PodGroup\.scheduling\.k8s\.io team-a/gang, which does not exist"),
        ({"schedulingGroup": {"podGroupName": "../x"}}, "which is not a valid name"),
        (IN_WORKLOAD, r"names Workload\.scheduling\.k8s\.io team-a/w, which does not exist"),
    ],
)
async def test_a_gang_that_is_not_there_is_named(spec: Any, message: str) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_of(make_pod("p", spec=spec))


async def test_a_pod_group_that_a_workload_lacks_is_named() -> None:
    workload = make_object(
        "scheduling.k8s.io/v1alpha1", "Workload", "w", spec={"podGroups": [{"name": "launcher"}]}
    )
    with pytest.raises(GroupingError, match=r'spec\.podGroups has no pod group "nodes"'):
        await group_of(make_pod("p", spec=IN_WORKLOAD), workload)


@pytest.mark.parametrize("count", [0, -1, None, "4"])
async def test_a_malformed_minimum_is_named(count: Any) -> None:
    gang = native(policy={"gang": {"minCount": count}})

    with pytest.raises(GroupingError, match=r"^PodGroup\.scheduling\.k8s\.io team-a/gang: .*gang\.minCount"):
        await group_of(make_pod("p", spec=IN_GROUP), gang)


async def _grouped(pod: Any, cluster: Any, get: Any) -> Any:
    reader = interceptor.wrap(cluster, interceptor.Funcs(get=get))
    grouper = pod_grouper(cluster, reader)
    found = await grouper.get_pod_owners(pod)
    return await found.metadata(pod)


async def test_an_older_version_of_the_api_is_found() -> None:
    async def get(inner: Any, kind: Any, key: Any) -> Any:
        if kind.gvk == GVK("scheduling.k8s.io", "v1beta1", "PodGroup"):
            raise NoKindMatchError(kind.gvk)
        return await inner.get(kind, key)

    pod = make_pod("p", spec=IN_GROUP)

    assert (await _grouped(pod, FakeClient(pod, native("v1alpha2")), get)).min_available == 4


async def test_a_version_that_the_server_has_ceased_to_serve_is_passed_over() -> None:
    """Discovery still returns a cached version whose path the API server no longer serves after an upgrade."""
    served = "v1alpha2"

    async def get(inner: Any, kind: Any, key: Any) -> Any:
        group, version, _ = kind.gvk
        if group == "scheduling.k8s.io" and version != served:
            raise NotFoundError("404 page not found", code=404, reason="NotFound")
        return await inner.get(kind, key)

    pod = make_pod("p", spec=IN_GROUP)
    cluster = FakeClient(pod, native("v1alpha2"), native("v1beta1"))
    reader = interceptor.wrap(cluster, interceptor.Funcs(get=get))
    grouper = pod_grouper(cluster, reader)
    for served in ("v1alpha2", "v1beta1"):
        metadata = await (await grouper.get_pod_owners(pod)).metadata(pod)
        assert metadata.owner.api_version == f"scheduling.k8s.io/{served}"


async def test_without_the_api_the_event_says_so() -> None:
    async def get(_inner: Any, kind: Any, _key: Any) -> Any:
        raise NoKindMatchError(kind.gvk)

    pod = make_pod("p", spec=IN_GROUP)

    with pytest.raises(GroupingError, match="of a kind that the API server does not serve"):
        await _grouped(pod, FakeClient(pod), get)


async def test_without_the_right_to_read_it_the_pod_is_grouped_by_its_owner() -> None:
    pod = make_pod("p", spec=IN_GROUP)
    cluster = FakeClient(pod)

    found = await pod_grouper(cluster, refusing(cluster, "PodGroup")).get_pod_owners(pod)

    assert (await found.metadata(pod)).name == "pg-p-uid-p"


@pytest.mark.parametrize(
    ("labels", "pod_class", "expected"),
    [({}, "", "gold"), ({}, "silver", "gold"), ({"priorityClassName": "silver"}, "", "silver")],
)
async def test_the_priority_class_of_the_gang_precedes_that_of_its_pods_but_no_label(
    labels: dict[str, str], pod_class: str, expected: str
) -> None:
    gang = native()
    gang.unknown_fields["spec"]["priorityClassName"] = "gold"
    classes = [make_object("scheduling.k8s.io/v1", "PriorityClass", name) for name in ("gold", "silver")]
    for each in classes:
        each.metadata.namespace = None
    pod = make_pod("p", labels=labels, spec={**IN_GROUP, "priorityClassName": pod_class})

    assert (await group_of(pod, gang, *classes)).priority_class_name == expected
    assert (await group_of(pod, gang)).priority_class_name == "train"


@pytest.mark.parametrize(
    ("annotations", "levels", "required"),
    [
        ({"kai.scheduler/topology": "t"}, ["rack"], "rack"),
        ({"kai.scheduler/topology": "t"}, ["rack", "zone"], None),
        ({}, ["rack"], None),
        ({}, [], ""),
        (
            {"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "zone"},
            ["rack"],
            "zone",
        ),
    ],
)
async def test_the_topology_constraint_of_the_gang_is_taken_or_reported(
    annotations: dict[str, str], levels: list[str], required: str | None
) -> None:
    gang = native()
    gang.unknown_fields["spec"]["schedulingConstraints"] = {"topology": [{"key": each} for each in levels]}
    pod = make_pod("p", annotations=annotations, spec=IN_GROUP)

    metadata = await group_of(pod, gang)

    assert metadata.required_topology_level == (required or "")
    assert ("schedulingConstraints.topology has no effect" in metadata.ignored) is (required is None)


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"parentCompositePodGroupName": "all"}, ["parentCompositePodGroupName"]),
        ({"priorityClassName": "gone"}, ["priorityClassName"]),
        (
            {"priorityClassName": "gone", "schedulingConstraints": {"topology": [{"key": "rack"}]}},
            ["priorityClassName", "schedulingConstraints.topology"],
        ),
        ({"schedulingConstraints": {"topology": [{}, 1]}}, ["schedulingConstraints.topology"]),
        ({"schedulingConstraints": {"topology": []}, "priorityClassName": ""}, []),
        ({"schedulingConstraints": None, "parentCompositePodGroupName": ""}, []),
        ({"disruptionMode": {"all": {}}, "priority": 100, "resourceClaims": []}, []),
    ],
)
async def test_fields_of_the_gang_that_have_no_effect_are_named(
    fields: dict[str, Any], ignored: list[str]
) -> None:
    gang = native()
    gang.unknown_fields["spec"] |= fields

    metadata = await group_of(make_pod("p", spec=IN_GROUP), gang)

    assert (metadata.min_available, metadata.priority_class_name) == (4, "train")
    assert [f"spec.{each} has no effect" in metadata.ignored for each in ignored] == [True] * len(ignored)
    assert bool(metadata.ignored) is bool(ignored)


@pytest.mark.parametrize(
    "fields",
    [
        {"priorityClassName": 1},
        {"schedulingConstraints": []},
        {"schedulingConstraints": {"topology": {"key": "rack"}}},
        {"parentCompositePodGroupName": ["all"]},
    ],
)
async def test_a_malformed_field_of_the_gang_is_named(fields: dict[str, Any]) -> None:
    gang = native()
    gang.unknown_fields["spec"] |= fields

    with pytest.raises(
        GroupingError, match=rf"^PodGroup\.scheduling\.k8s\.io team-a/gang: .*{next(iter(fields))}"
    ):
        await group_of(make_pod("p", spec=IN_GROUP), gang)


async def test_a_class_that_may_not_be_read_is_not_called_missing() -> None:
    gang = native()
    gang.unknown_fields["spec"]["priorityClassName"] = "gold"
    pod = make_pod("p", spec=IN_GROUP)
    cluster = FakeClient(pod, gang)

    found = await pod_grouper(cluster, refusing(cluster, "PriorityClass")).get_pod_owners(pod)
    metadata = await found.metadata(pod)

    assert metadata.ignored == ""
    assert "PriorityClass gold cannot be read" in metadata.unread
