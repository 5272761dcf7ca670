# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Workers can be divided into segments of equal size. The pods of a segment are placed close together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON

from pkg.constants import kai
from pkg.podgrouper.podgroup import TopologyConstraintMetadata

from . import fields
from .errors import AccessorError, GroupingError

MAX_SEGMENTS: Final = 30_000
"""Maximum number of segments of a group. A segment takes some 55 bytes, and etcd stores objects of up to 1.5 MiB."""

MAX_SUBGROUPS_V0_17: Final = 10_000
"""Maximum number of segments or replicas of a group by the rules of v0.17."""


def check_number(segments: int) -> None:
    """Raise GroupingError if the API server cannot store a group with this many segments."""
    if segments > MAX_SEGMENTS:
        raise GroupingError(f"{segments} segments are too many for a pod group, at most {MAX_SEGMENTS}")


def topology_constraint(
    pod: Pod, template: Mapping[str, JSON], owner_annotations: Mapping[str, str]
) -> TopologyConstraintMetadata | None:
    """Return the topology constraint of a segment, or None if no topology or no level is set.

    Each value comes from an annotation of the pod, else of the worker template. The topology may also come from an
    annotation of the owner.
    """
    topology = annotation(pod, template, kai.TOPOLOGY_KEY) or owner_annotations.get(kai.TOPOLOGY_KEY, "")
    required = annotation(pod, template, kai.SEGMENT_TOPOLOGY_REQUIRED_PLACEMENT_KEY)
    preferred = annotation(pod, template, kai.SEGMENT_TOPOLOGY_PREFERRED_PLACEMENT_KEY)
    return placement(topology, required, preferred)


def placement(topology: str, required: str, preferred: str) -> TopologyConstraintMetadata | None:
    """Return a topology constraint, or None if no topology or no level is set."""
    if not topology or not (required or preferred):
        return None
    return TopologyConstraintMetadata(
        topology=topology, required_topology_level=required, preferred_topology_level=preferred
    )


def annotation(pod: Pod, template: Mapping[str, JSON], key: str) -> str:
    """Return the annotation of the pod, else of the template, else an empty string."""
    if value := pod.annotations.get(key):
        return value
    try:
        return fields.nested_string(template, "metadata", "annotations", key) or ""
    except AccessorError:
        return ""
