# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A grouper's description of a pod's group."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller_runtime.apis.meta.v1 import OwnerReference


@dataclass(slots=True, kw_only=True)
class TopologyConstraintMetadata:
    """Desired placement of pods near each other. An empty string means that the field is not set."""

    preferred_topology_level: str = ""
    required_topology_level: str = ""
    topology: str = ""


@dataclass(slots=True, kw_only=True)
class SubGroupMetadata:
    """A part of the group.

    ``pods_references`` lists the names of its pods; comparisons ignore this field. If ``min_sub_group`` is set, the
    scheduler requires this number of child subgroups, and ``min_available`` is not used.
    """

    name: str
    min_available: int = 0
    min_sub_group: int | None = None
    parent: str | None = None
    pods_references: list[str] = field(default_factory=list, compare=False)
    topology_constraints: TopologyConstraintMetadata | None = None


@dataclass(slots=True, kw_only=True)
class Metadata:
    """The desired group of a pod. The caller owns it and may change it.

    Labels and annotations may be None, like a nil map in Go; this means the same as an empty dict. If ``min_sub_group``
    is set, the scheduler requires this number of subgroups without a parent, and ``min_available`` is not used. The two
    durations are in Go's notation.
    """

    name: str
    namespace: str
    owner: OwnerReference
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    priority_class_name: str = ""
    preemptibility: str = ""
    queue: str = ""
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    min_available: int = 0
    min_sub_group: int | None = None
    sub_groups: list[SubGroupMetadata] = field(default_factory=list)
    preferred_topology_level: str = ""
    required_topology_level: str = ""
    topology: str = ""
    unread: str = ""
    """Why priority class and preemptibility may be wrong: an object that decides about them could not be read.

    A group that exists keeps both.
    """
    ignored: str = field(default="", compare=False)
    """A field of the workload that has no effect, and why."""

    def set_apart(self, part: str) -> None:
        """Make this the group of a part of the owner whose pods wait neither for each other nor for the other parts."""
        self.name += f"-{part}"
        self.min_available, self.sub_groups = 1, []

    def find_sub_group_for_pod(self, namespace: str, name: str) -> SubGroupMetadata | None:
        """Return the first subgroup that refers to the pod, or None."""
        if namespace != self.namespace:
            return None
        return next((each for each in self.sub_groups if name in each.pods_references), None)
