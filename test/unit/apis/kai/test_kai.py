# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a KAI PodGroup, and its short name."""

from controller_runtime.machinery.crd import custom_resource_definition

from pkg.apis.kai.v2alpha2 import PodGroup


def test_the_status_of_a_pod_group_that_cannot_be_scheduled_is_read() -> None:
    quota = {"name": "q", "queueResourceLimits": {"nvidia.com/gpu": "8"}}
    reason = {"reason": "OverLimit", "message": "too much", "details": {"queueDetails": quota}}
    condition = {"type": "UnschedulableOnNodePool", "transitionID": "1", "reasons": [reason]}

    group = PodGroup.from_dict({"status": {"schedulingConditions": [condition]}})

    (read,) = group.status.scheduling_conditions or []
    assert read.transition_id == "1"
    assert group.to_dict()["status"] == {"schedulingConditions": [condition]}
    assert custom_resource_definition(PodGroup)["spec"]["names"]["shortNames"] == ["pg"]
