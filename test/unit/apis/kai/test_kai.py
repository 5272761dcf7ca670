# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The values that the CRDs of KAI's kinds accept; tests install the CRDs that are generated from the models."""

from __future__ import annotations

from typing import Any

from controller_runtime.machinery.crd import custom_resource_definition

from pkg.apis.kai.v2 import Queue
from pkg.apis.kai.v2alpha2 import PodGroup


def schema(kind: Any) -> dict[str, Any]:
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    properties: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def test_the_spec_of_a_pod_group_has_upstreams_limits() -> None:
    spec = schema(PodGroup)["spec"]["properties"]

    assert spec["minMember"] == {**spec["minMember"], "type": "integer", "format": "int32", "minimum": 1}
    assert spec["preemptibility"]["enum"] == ["preemptible", "non-preemptible"]
    sub_group = spec["subGroups"]["items"]
    assert (sub_group["required"], sub_group["properties"]["name"]["minLength"]) == (["name"], 1)
    assert set(sub_group["properties"]) == {
        "name",
        "minMember",
        "minSubGroup",
        "parent",
        "topologyConstraint",
    }
    assert set(spec["topologyConstraint"]["properties"]) == {
        "preferredTopologyLevel",
        "requiredTopologyLevel",
        "topology",
    }


def test_the_status_of_a_pod_group_that_cannot_be_scheduled_is_read() -> None:
    quota = {"name": "q", "queueResourceLimits": {"nvidia.com/gpu": "8"}}
    reason = {"reason": "OverLimit", "message": "too much", "details": {"queueDetails": quota}}
    condition = {"type": "UnschedulableOnNodePool", "transitionID": "1", "reasons": [reason]}

    group = PodGroup.from_dict({"status": {"schedulingConditions": [condition]}})

    (read,) = group.status.scheduling_conditions or []
    assert read.transition_id == "1"
    assert group.to_dict()["status"] == {"schedulingConditions": [condition]}
    assert custom_resource_definition(PodGroup)["spec"]["names"]["shortNames"] == ["pg"]


def test_queues_belong_to_no_namespace() -> None:
    assert custom_resource_definition(Queue)["spec"]["scope"] == "Cluster"
    assert schema(Queue)["spec"]["properties"]["resources"]["properties"]["gpu"]["properties"]["limit"] == {
        "type": "number"
    }
