# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import pytest

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apply import drift
from pkg.controller.children import (
    fixed_fields,
    fixed_fields_match,
    has_active_jobs,
    is_observed,
    suspended_as_it_is,
)


@pytest.mark.parametrize(
    ("live", "desired", "covered"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": True}, {"a": 1}, False),
        ({}, {"a": {}}, True),
        ({}, {"a": []}, True),
        ({"a": None}, {"a": {"b": {}}}, True),
        ({"a": "x"}, {"a": {}}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"env": [{"name": "B"}, {"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "1"}]}, True),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, False),
        ({"env": []}, {"env": [{"name": "A"}]}, False),
        ({"ports": [{"containerPort": 1, "protocol": "TCP"}]}, {"ports": [{"containerPort": 1}]}, True),
        ({"ports": [{"containerPort": 2}, {"containerPort": 1}]}, {"ports": [{"containerPort": 1}]}, True),
        ({"ports": [{"containerPort": True}, {"containerPort": 1}]}, {"ports": [{"containerPort": 1}]}, False),
        ({"mounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]},
         {"mounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}, False),
        ({"mounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]},
         {"mounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]}, True),
        ({"nodeSelector": {"a": "1", "b": "2"}}, {"nodeSelector": {"a": "1"}}, False),
        ({"tolerations": [{"key": "a", "effect": "NoSchedule"}]}, {"tolerations": [{"key": "a"}]}, False),
        ({}, {"nodeSelector": {}}, True),
    ],
)  # fmt: skip
def test_live_covers_what_it_holds(live: Any, desired: Any, covered: bool) -> None:
    assert drift.covers(live, desired) is covered


def jobset(*, suspend: bool, image: str = "one", selector: str = "", uid: str = "") -> dict[str, Any]:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "node", "image": image}]}}
    if selector:
        pod["spec"]["nodeSelector"] = {"pool": selector}
        pod["metadata"] = {"labels": {"pool": selector}}
    metadata = {"name": "job", "namespace": "ns"} | ({"uid": uid} if uid else {})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "suspend": suspend,
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": pod}}}],
        },
    }


def live_jobset(**kwargs: Any) -> dict[str, Any]:
    """Return the JobSet with the defaults of JobSet's webhook and CRD, which no client applied."""
    live = jobset(uid="u1", **kwargs)
    live["spec"] |= {"network": {"enableDNSHostnames": True}, "successPolicy": {"operator": "All"}}
    live["spec"]["replicatedJobs"][0] |= {"replicas": 1, "groupName": "default"}
    live["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"completionMode": "Indexed"}
    live["status"] = {"restarts": 0}
    return live


def match(live: dict[str, Any], desired: dict[str, Any]) -> bool:
    return fixed_fields_match(JobSet.from_dict(live), JobSet.from_dict(desired))


def test_a_job_set_with_defaults_holds_what_was_desired() -> None:
    live = live_jobset(suspend=True)
    assert match(live, jobset(suspend=False))
    assert not match(live, jobset(suspend=True, image="two"))


@pytest.mark.parametrize("suspend", [False, True])
def test_scheduling_is_no_part_of_what_is_fixed(suspend: bool) -> None:
    live = live_jobset(suspend=suspend, selector="old")
    assert match(live, jobset(suspend=suspend, selector="new"))
    assert match(live, jobset(suspend=not suspend))


def test_the_default_retention_of_volumes_is_no_difference() -> None:
    live, desired = live_jobset(suspend=True), jobset(suspend=True)
    desired["spec"]["volumeClaimPolicies"] = [{"templates": [{"metadata": {"name": "model"}}]}]
    (policy,) = live["spec"]["volumeClaimPolicies"] = [dict(desired["spec"]["volumeClaimPolicies"][0])]
    policy["retentionPolicy"] = {"whenDeleted": "Delete"}
    assert match(live, desired)
    policy["retentionPolicy"] = {"whenDeleted": "Retain"}
    assert not match(live, desired)


def test_replicated_jobs_that_come_or_go_are_a_difference() -> None:
    more = jobset(suspend=True)
    more["spec"]["replicatedJobs"].append({"name": "more", "template": {}})
    assert not match(live_jobset(suspend=True), more)
    assert not match(more, jobset(suspend=True))


def test_what_live_has_beyond_the_desired_is_a_difference_unless_it_is_a_default() -> None:
    live = live_jobset(suspend=True)
    container = live["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 1, "protocol": "TCP"}]
    desired = jobset(suspend=True)
    desired["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"containerPort": 1}
    ]
    assert match(live, desired)
    container["args"] = ["more"]
    assert not match(live, desired)


def test_a_preview_is_compared_exactly() -> None:
    live = live_jobset(suspend=True)
    preview = copy.deepcopy(live)
    preview["spec"]["suspend"] = False
    assert fixed_fields(preview) == fixed_fields(live)
    del preview["spec"]["network"]
    assert fixed_fields(preview) != fixed_fields(live)


@pytest.mark.parametrize(
    ("jobs", "observed", "active"),
    [([], False, False), ([{"suspended": 1}], True, False), ([{"suspended": 1}, {"active": 1}], True, True)],
)
def test_the_status_says_what_exists_and_what_runs(jobs: list[Any], observed: bool, active: bool) -> None:
    live = JobSet.from_dict(live_jobset(suspend=True) | {"status": {"replicatedJobsStatus": jobs}})
    assert (is_observed(live), has_active_jobs(live)) == (observed, active)


def test_suspending_leaves_the_rest_exactly_as_it_is() -> None:
    live, desired = live_jobset(suspend=False), jobset(suspend=True, image="two")
    live["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {}
    before = copy.deepcopy((live, desired))
    suspended = suspended_as_it_is(JobSet.from_dict(live), desired)
    assert suspended.to_dict() == {**desired, "spec": live["spec"] | {"suspend": True}}
    assert (live, desired) == before


def test_the_content_is_what_clients_write() -> None:
    live = {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "generation": 2, "labels": {"a": "b"}},
        "data": {"k": "v"},
        "status": {},
    }
    assert drift.content(live) == {"metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}}


@pytest.mark.parametrize(
    ("live", "desired", "sent"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {}}, {}, id="emptied"),
        pytest.param({"a": {}}, {"a": {}}, {"a": {}}, id="empty before"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="new"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 2}}, id="changed"),
        pytest.param(
            {"jobs": [{"name": "x", "a": {}}, {"name": "y", "a": {"b": 1}}]},
            {"jobs": [{"name": "y", "a": {}}, {"name": "x", "a": {}}, {"name": "z", "a": {}}]},
            {"jobs": [{"name": "y"}, {"name": "x", "a": {}}, {"name": "z", "a": {}}]},
            id="in keyed items",
        ),
        pytest.param(
            [[{"a": {"b": 1}}]], [[{"a": {}}], [{"a": {}}]], [[{}], [{"a": {}}]], id="in items by place"
        ),
    ],
)
def test_a_map_that_an_apply_would_empty_is_not_sent(live: Any, desired: Any, sent: Any) -> None:
    assert drift.without_emptied(live, desired) == sent


def test_what_the_api_server_adds_to_a_gang_is_no_difference() -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    live = {**policy, "disruptionMode": {"single": {}}, "priority": 0}
    assert drift.equal(live, policy)
    assert not drift.equal({**live, "priority": 7}, policy)
