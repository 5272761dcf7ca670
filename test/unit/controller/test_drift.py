# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import copy
from typing import Any

import pytest

from pkg.apis.core.v1 import ConfigMap
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.controller import drift

JOBSET = drift.rule_for(JobSet.gvk)


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
        ({"mounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]},
         {"mounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}, True),
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
    """As JobSet's webhook and the CRD leave it: with defaults nobody applied."""
    live = jobset(uid="u1", **kwargs)
    live["spec"] |= {"network": {"enableDNSHostnames": True}, "successPolicy": {"operator": "All"}}
    live["spec"]["replicatedJobs"][0] |= {"replicas": 1, "groupName": "default"}
    live["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"completionMode": "Indexed"}
    live["status"] = {"restarts": 0}
    return live


def changed(live: dict[str, Any], desired: dict[str, Any]) -> bool:
    return not drift.covers(JOBSET.mutable(live, desired, live), JOBSET.mutable(live, desired, desired))


def test_a_resumed_jobset_differs_in_suspend_and_is_applied_with_its_live_pods() -> None:
    live, desired = live_jobset(suspend=True), jobset(suspend=False, image="two")
    assert changed(live, desired)
    composed = JOBSET.compose(live, desired)
    assert composed["metadata"]["uid"] == "u1"
    assert composed["spec"] == live["spec"] | {"suspend": False}
    assert JOBSET.kept(live, desired) == ["spec.replicatedJobs"]


def test_the_scheduling_of_a_suspended_jobset_may_change_and_nothing_else() -> None:
    live, desired = (
        live_jobset(suspend=True, selector="old"),
        jobset(suspend=False, selector="new", image="two"),
    )
    composed = JOBSET.compose(live, desired)
    expected = copy.deepcopy(live["spec"]) | {"suspend": False}
    template = expected["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"pool": "new"}
    template["metadata"]["labels"] = {"pool": "new"}
    assert composed["spec"] == expected


def test_scheduling_that_is_no_longer_desired_is_left_out() -> None:
    live, desired = live_jobset(suspend=True, selector="old"), jobset(suspend=True)
    template = JOBSET.compose(live, desired)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template == {"spec": {"containers": [{"name": "node", "image": "one"}]}}


def test_the_pods_of_a_running_jobset_do_not_count_as_changed() -> None:
    live, desired = live_jobset(suspend=False), jobset(suspend=False, selector="new", image="two")
    assert not changed(live, desired)


def test_a_suspended_jobset_that_is_as_desired_has_no_difference_at_all() -> None:
    live, desired = live_jobset(suspend=True, selector="a"), jobset(suspend=True, selector="a")
    assert JOBSET.mutable(live, desired, live) == JOBSET.mutable(live, desired, desired)
    assert JOBSET.kept(live, desired) == []


def test_replicated_jobs_cannot_come_or_go() -> None:
    live, desired = live_jobset(suspend=True), jobset(suspend=True)
    desired["spec"]["replicatedJobs"].append({"name": "more", "template": {}})
    assert not changed(live, desired)
    assert [job["name"] for job in JOBSET.compose(live, desired)["spec"]["replicatedJobs"]] == ["node"]


def test_composing_changes_neither_argument() -> None:
    live, desired = live_jobset(suspend=True, selector="a"), jobset(suspend=False, selector="b")
    before = copy.deepcopy((live, desired))
    JOBSET.compose(live, desired)
    assert (live, desired) == before


def test_of_other_kinds_everything_but_the_status_may_change() -> None:
    rule = drift.rule_for(ConfigMap.gvk)
    live = {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "generation": 2},
        "data": {"k": "v"},
        "status": {},
    }
    desired = {"metadata": {"name": "a"}, "data": {"k": "w"}}
    assert rule.mutable(live, desired, live) == {"metadata": {}, "data": {"k": "v"}}
    assert rule.compose(live, desired) == {"metadata": {"name": "a", "uid": "u"}, "data": {"k": "w"}}
