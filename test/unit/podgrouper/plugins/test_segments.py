# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError, segments
from pkg.podgrouper.podgroup import TopologyConstraintMetadata

TOPOLOGY, REQUIRED, PREFERRED = (
    "kai.scheduler/topology",
    "kai.scheduler/segment-topology-required-placement",
    "kai.scheduler/segment-topology-preferred-placement",
)


def _template(**annotations: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def test_the_pod_says_where_a_segment_goes_then_the_template_then_of_the_topology_the_owner(
    make_pod: Any,
) -> None:
    pod = make_pod("p", annotations={REQUIRED: "pod", PREFERRED: ""})
    template = _template(**{REQUIRED: "template", PREFERRED: "template"})

    constraint = segments.topology_constraint(pod, template, {TOPOLOGY: "owner"})

    assert constraint == TopologyConstraintMetadata(
        topology="owner", required_topology_level="pod", preferred_topology_level="template"
    )


@pytest.mark.parametrize(
    ("template", "owner"),
    [
        pytest.param(_template(**{REQUIRED: "rack"}), {}, id="no topology"),
        pytest.param(_template(), {TOPOLOGY: "t"}, id="no level"),
        pytest.param({"metadata": []}, {TOPOLOGY: "t"}, id="a template read badly has no annotations"),
        pytest.param(_template(**{REQUIRED: 7}), {TOPOLOGY: "t"}, id="a level that is no text is none"),
    ],
)
def test_without_a_topology_and_a_level_there_is_no_constraint(
    template: Any, owner: dict[str, str], make_pod: Any
) -> None:
    assert segments.topology_constraint(make_pod("p"), template, owner) is None


def test_no_more_segments_than_a_group_could_hold() -> None:
    segments.check_number(segments.MAX_SEGMENTS)
    with pytest.raises(GroupingError, match=r"^30001 segments are too many for a pod group, at most 30000$"):
        segments.check_number(segments.MAX_SEGMENTS + 1)
