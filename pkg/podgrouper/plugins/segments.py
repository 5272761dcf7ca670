# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Segments: workers cut into runs of one size, each to be placed near each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.machinery.base import JSON

from pkg.constants import kai
from pkg.podgrouper.podgroup import TopologyConstraintMetadata

from . import fields
from .errors import AccessorError, GroupingError

MOST: Final = 100_000
"""No API server takes an object with more subgroups; a number in an owner must not fill our memory."""


def check_number(segments: int) -> None:
    """Raise GroupingError when a group of so many segments could never be stored."""
    if segments > MOST:
        raise GroupingError(f"{segments} segments are too many for a pod group, at most {MOST}")


def topology_constraint(
    pod: Pod, template: Mapping[str, JSON], owner_annotations: Mapping[str, str]
) -> TopologyConstraintMetadata | None:
    """Return how near a segment's pods are wanted: the pod says, then the worker's template.

    Nothing without a level, nor without a topology; that one may be named on the owner too.
    """
    topology = annotation(pod, template, kai.TOPOLOGY_KEY) or owner_annotations.get(kai.TOPOLOGY_KEY, "")
    required = annotation(pod, template, kai.SEGMENT_TOPOLOGY_REQUIRED_PLACEMENT_KEY)
    preferred = annotation(pod, template, kai.SEGMENT_TOPOLOGY_PREFERRED_PLACEMENT_KEY)
    if not topology or not (required or preferred):
        return None
    return TopologyConstraintMetadata(
        topology=topology, required_topology_level=required, preferred_topology_level=preferred
    )


def annotation(pod: Pod, template: Mapping[str, JSON], key: str) -> str:
    """Return the pod's annotation, else the template's; a template read badly has none."""
    if value := pod.annotations.get(key):
        return value
    try:
        return fields.nested_string(template, "metadata", "annotations", key) or ""
    except AccessorError:
        return ""
