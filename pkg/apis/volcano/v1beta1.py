# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volcano's PodGroup."""

from typing import Annotated, ClassVar, Final

from controller_runtime.machinery import JSON, Object, Struct
from controller_runtime.machinery.crd import Markers
from controller_runtime.machinery.quantity import ResourceList
from pydantic import Field

QUEUE_NAME_ANNOTATION_KEY: Final = "scheduling.volcano.sh/queue-name"
KUBE_GROUP_NAME_ANNOTATION_KEY: Final = "scheduling.k8s.io/group-name"


class NetworkTopologySpec(Struct):
    """Limit on the distance between the pods of a group in the network."""

    mode: Annotated[str | None, Markers(default="hard", enum=("hard", "soft"))] = None
    """Whether the limit must be met (hard, the default) or should be met if possible (soft)."""
    highest_tier_allowed: Annotated[int | None, Markers(default=1)] = None
    """The highest tier of the network across which the pods may be spread. Defaults to 1."""
    go_pointers: ClassVar[frozenset[str]] = frozenset({"highest_tier_allowed"})


class PodGroupSpec(Struct):
    """volcanov1beta1.PodGroupSpec."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    min_resources: ResourceList | None = None
    network_topology: NetworkTopologySpec | None = None


class PodGroupStatus(Struct):
    """volcanov1beta1.PodGroupStatus."""

    phase: str | None = None
    conditions: list[dict[str, JSON]] | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class PodGroup(Object, group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups"):
    """volcanov1beta1.PodGroup."""

    applies_defaults: ClassVar[bool] = True

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)
