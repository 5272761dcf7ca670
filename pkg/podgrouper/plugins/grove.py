# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Grove's sets (PodCliqueSet, formerly PodGangSet): one group for each PodGang, with a subgroup for each pod group in
the PodGang.

Grove's operator writes PodGangs for schedulers. A label of the pod names its PodGang.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, JSON, Object, Unstructured, unstructured
from controller_runtime.machinery.goduration import format_duration

from pkg.apis.kai.v2alpha2 import parse_preemptibility
from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata, SubGroupMetadata, TopologyConstraintMetadata

from . import fields
from .defaultgrouper import preemption_delay
from .delegating import ReadingGrouper
from .errors import UNREADABLE, GroupingError, failing
from .grouper import Reads

POD_GANG_LABEL: Final = "grove.io/podgang"
TOPOLOGY_NAME_ANNOTATION: Final = "grove.io/topology-name"

_log: Final = log.logger_from("podgrouper")

_POD_GANG: Final = unstructured(GVK("scheduler.grove.io", "v1alpha1", "PodGang"))
_Map = dict[str, JSON]
_T = TypeVar("_T")


# +kubebuilder:rbac:groups=grove.io,resources=podgangsets,verbs=get;list;watch
# +kubebuilder:rbac:groups=grove.io,resources=podcliquesets,verbs=get;list;watch
# +kubebuilder:rbac:groups=grove.io,resources=podcliques,verbs=get;list;watch
# +kubebuilder:rbac:groups=grove.io,resources=podcliquescalinggroups,verbs=get;list;watch
# +kubebuilder:rbac:groups=scheduler.grove.io,resources=podgangs,verbs=get;list;watch
class GroveGrouper(ReadingGrouper):
    """Groups the pods of a PodGang."""

    name = "Grove Grouper"
    reads = Reads.METADATA

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the group of the pod's PodGang, with its subgroups, their parents and topology.

        Labels and annotations of the gang take precedence over those of the PodCliqueSet.

        Raises:
            GroupingError: the pod names no gang, or the gang is unreadable or malformed.
        """
        name = pod.labels.get(POD_GANG_LABEL)
        if name is None:
            raise GroupingError(
                f"label for podgang name (key: {POD_GANG_LABEL}) not found in pod {pod.namespace}/{pod.name}"
            )
        named = f"{pod.namespace}/{name}"
        try:
            gang = await self._client.get(_POD_GANG, (pod.namespace, name))
        except UNREADABLE as error:
            raise GroupingError(f"failed to get PodGang {named}. Err: {error}") from error
        metadata = await self._default.get_pod_group_metadata(gang, pod)
        reader = _Gang(gang, named)
        with failing(
            f"failed to apply topology constraints from PodGang {named}."
            f" Err: failed to parse topology from PodGang, Err: "
        ):
            constraint = reader.constraint(gang, "spec", "topologyConstraint")
        if constraint is not None:
            metadata.preferred_topology_level = constraint.preferred_topology_level
            metadata.required_topology_level = constraint.required_topology_level
            metadata.topology = constraint.topology
        with failing(
            f"failed to get spec.priorityClassName from PodGang {named}."
            f" Err: failed to get spec.priorityClassName: "
        ):
            priority_class = fields.nested_string(gang, "spec", "priorityClassName")
        if priority_class is not None:  # it may be an empty string
            metadata.priority_class_name = priority_class
        metadata.labels = labels = {**top_owner.labels, **(metadata.labels or {})}
        metadata.annotations = annotations = {**top_owner.annotations, **(metadata.annotations or {})}
        metadata.priority_class_name = labels.get(kai.PRIORITY_LABEL_KEY, metadata.priority_class_name)
        if (preemptibility := labels.get(kai.PREEMPTIBILITY_LABEL_KEY)) is not None:
            try:
                metadata.preemptibility = parse_preemptibility(preemptibility)
            except ValueError as error:
                raise GroupingError(
                    f"failed to get metadata from top owner {named}. Err: failed to parse preemptibility"
                    f" from top owner {metadata.namespace}/{metadata.name}. Err: {error}"
                ) from error
        metadata.preferred_topology_level = metadata.preferred_topology_level or annotations.get(
            kai.TOPOLOGY_PREFERRED_PLACEMENT_KEY, ""
        )
        metadata.required_topology_level = metadata.required_topology_level or annotations.get(
            kai.TOPOLOGY_REQUIRED_PLACEMENT_KEY, ""
        )
        metadata.topology = metadata.topology or annotations.get(kai.TOPOLOGY_KEY, "")
        if (text := annotations.get(kai.PREEMPTION_DELAY_KEY)) is not None:
            try:
                metadata.preemption_delay = format_duration(preemption_delay(text))
            except ValueError as error:  # an invalid delay is ignored
                _log.error("Invalid annotation found", annotation=kai.PREEMPTION_DELAY_KEY, error=error)
        parents, parent_of = reader.parents()
        with failing(f"failed to get spec.podgroups from PodGang {named}. Err: "):
            groups = fields.nested_list(gang, "spec", "podgroups") or []
        children = [reader.sub_group(index, group) for index, group in enumerate(groups)]
        for child in children:
            child.parent = parent_of.get(child.name)
        sizes = Counter(child.parent for child in children)
        for parent in parents:  # it may name pod groups of another gang, or of another parent
            parent.min_sub_group = sizes[parent.name] or None
        metadata.sub_groups = parents + children
        metadata.min_available = fields.int32(sum(child.min_available for child in children))
        return metadata


class _Gang:
    """Reads the parts of one PodGang. ``named`` is its namespace and name, for messages."""

    def __init__(self, gang: Unstructured, named: str) -> None:
        self._named = named
        self._gang = gang
        annotations = gang.annotations
        self._topology = annotations.get(TOPOLOGY_NAME_ANNOTATION, annotations.get(kai.TOPOLOGY_KEY, ""))

    def parents(self) -> tuple[list[SubGroupMetadata], dict[str, str]]:
        """Return a subgroup for each set of pod groups that are placed together.

        The second value maps the name of each pod group to the name of its set.
        """
        with _parsing("topologyConstraintGroupConfigs"):
            configs = fields.nested_list(self._gang, "spec", "topologyConstraintGroupConfigs") or []
        parents: list[SubGroupMetadata] = []
        parent_of: dict[str, str] = {}
        for index, config in enumerate(configs):
            if not isinstance(config, dict):
                raise GroupingError(
                    f"invalid structure of spec.topologyConstraintGroupConfigs[{index}] in PodGang {self._named}"
                )
            with failing(f"failed to parse topologyConstraintGroupConfig[{index}]: "):
                name = _string(config, "name")
                with _parsing("podGroupNames"):
                    groups = fields.nested_string_list(config, "podGroupNames")
                if not groups:
                    continue
                with failing(f"failed to parse topology from topologyConstraintGroupConfig {name}. Err: "):
                    constraint = self.constraint(config, "topologyConstraint")
            parent_of.update(dict.fromkeys(groups, name))
            parents.append(SubGroupMetadata(name=name, topology_constraints=constraint))
        return parents, parent_of

    def sub_group(self, index: int, group: JSON) -> SubGroupMetadata:
        """Return the subgroup of one of the gang's pod groups."""
        if not isinstance(group, dict):
            raise GroupingError(f"invalid structure of spec.podgroup[{index}] in PodGang {self._named}")
        with failing(f"failed to parse spec.podgroups[{index}] from PodGang {self._named}. Err: "):
            name = _string(group, "name")
            with _parsing("minReplicas"):
                least = fields.nested_int64(group, "minReplicas")
            if (replicas := _required(least, "minReplicas")) <= 0:
                raise GroupingError("invalid 'minReplicas' field. Must be greater than 0")
            with _parsing("podReferences"):
                references = fields.nested_list(group, "podReferences")
            pods = [
                self._pod(index, at, reference)
                for at, reference in enumerate(_required(references, "podReferences"))
            ]
            with failing(f"failed to parse topology constraint from PodGang {self._named}. Err: "):
                constraint = self.constraint(group, "topologyConstraint")
        return SubGroupMetadata(
            name=name,
            min_available=fields.int32(replicas),
            pods_references=pods,
            topology_constraints=constraint,
        )

    def _pod(self, index: int, at: int, reference: JSON) -> str:
        """Return the pod's name; reject a reference to another namespace."""
        if not isinstance(reference, dict):
            raise GroupingError(
                f"invalid spec.podgroup[{index}].podReferences[{at}] in PodGang {self._named}"
            )
        with failing(
            f"failed to parse spec.podgroups[{index}].podreferences[{at}] from PodGang {self._named}. Err: "
        ):
            namespace = _string(reference, "namespace")
            name = _string(reference, "name")
        own = self._named.partition("/")[0]
        if namespace != own:
            raise GroupingError(
                f"cross-namespace pod reference not allowed: pod {namespace}/{name}"
                f" cannot be referenced from PodGang in namespace {own}"
            )
        return name

    def constraint(self, holder: Unstructured | _Map, *path: str) -> TopologyConstraintMetadata | None:
        preferred = fields.nested_string(holder, *path, "packConstraint", "preferred")
        required = fields.nested_string(holder, *path, "packConstraint", "required")
        if preferred is None and required is None:
            return None
        if not self._topology:
            raise GroupingError("topology name cannot be empty when topology constraints are defined")
        return TopologyConstraintMetadata(
            topology=self._topology,
            preferred_topology_level=preferred or "",
            required_topology_level=required or "",
        )


def _string(holder: _Map, field: str) -> str:
    with _parsing(field):
        value = fields.nested_string(holder, field)
    return _required(value, field)


def _required(value: _T | None, field: str) -> _T:
    if value is None:
        raise GroupingError(f"missing required '{field}' field")
    return value


def _parsing(field: str) -> AbstractContextManager[None]:
    return failing(f"failed to parse '{field}' field. Err: ")
