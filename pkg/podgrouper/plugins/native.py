# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods that name a gang of Kubernetes' own scheduling API: one group for each gang.

In Kubernetes 1.35, a pod group is part of a Workload, and a pod names it in ``spec.workloadRef``. From 1.36 on, a
PodGroup is a separate object, and a pod names it in ``spec.schedulingGroup.podGroupName``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import GVK, JSON, Object, Unstructured, names, unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.machinery.gojson import quote
from controller_runtime.rest import NoKindMatchError

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata

from . import fields
from .defaultgrouper import DefaultGrouper
from .errors import GroupingError, failing
from .grouper import Grouper, inputs

GROUP: Final = "scheduling.k8s.io"
KINDS: Final = {
    "PodGroup": (GVK(GROUP, "v1beta1", "PodGroup"), GVK(GROUP, "v1alpha2", "PodGroup")),
    "Workload": (GVK(GROUP, "v1alpha1", "Workload"),),
}
"""The versions of each kind, newest first."""
_TOPOLOGY: Final = {
    "topology": kai.TOPOLOGY_KEY,
    "required_topology_level": kai.TOPOLOGY_REQUIRED_PLACEMENT_KEY,
    "preferred_topology_level": kai.TOPOLOGY_PREFERRED_PLACEMENT_KEY,
}

_log: Final = log.logger_from("podgrouper")


@dataclass(frozen=True, slots=True)
class NativeGang:
    """The gang that a pod names."""

    kind: str
    name: str
    pod_group: str = ""
    """The pod group of a Workload."""
    replica: str = ""
    """The replica of the Workload's pod group."""


def native_gang(pod: Pod) -> NativeGang | None:
    """Return the gang that ``pod`` names, or None."""
    group = pod.spec.scheduling_group
    if group is not None and group.pod_group_name:
        return NativeGang("PodGroup", group.pod_group_name)
    reference = pod.spec.unknown_fields.get("workloadRef")
    if name := _string(reference, "name"):
        return NativeGang(
            "Workload", name, _string(reference, "podGroup"), _string(reference, "podGroupReplicaKey")
        )
    return None


# +kubebuilder:rbac:groups=scheduling.k8s.io,resources=podgroups;workloads,verbs=get;list;watch
class NativeGrouper(Grouper):
    """Groups the pods of one gang. Queue, priority, labels and annotations come from the top owner.

    If the pods have no owner, labels and annotations come from the gang, and the rest from the gang or else the pod.
    If we are not allowed to read the gang, the grouper ``otherwise`` is called. ``served`` remembers which version of
    each kind the server serves.
    """

    name = "Kubernetes Gang Grouper"

    def __init__(
        self,
        default: DefaultGrouper,
        gang: NativeGang,
        otherwise: Grouper,
        served: dict[str, GVK],
    ) -> None:
        self._default = default
        self._gang = gang
        self._otherwise = otherwise
        self._served = served
        self.reads = otherwise.reads  # type: ignore[misc]  # set per instance: ``otherwise`` may be used

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the group of the gang. It requires the number of pods that the gang sets as its minimum.

        Its priority class is that of a label, else that of the gang. A topology constraint of the gang names only a
        level, so it needs the name of a Topology from the top owner.

        Raises:
            GroupingError: the gang does not exist or is malformed.
            StatusError, RestError: the gang cannot be read.
        """
        gang = self._gang
        try:
            obj = await self._read(pod.namespace)
        except ForbiddenError as error:
            _log.debug(
                "Pod is grouped without its gang: no permission to read it", gang=gang.name, error=error
            )
            inputs().is_denied = True
            return await self._otherwise.get_pod_group_metadata(top_owner, pod, *other_owners)
        if other_owners:
            metadata = await self._default.get_pod_group_metadata(top_owner, pod, *other_owners)
        else:
            # Each pod is its own top owner, but all pods make the same group.
            metadata = await self._default.get_pod_group_metadata(obj, pod, top_owner)
            for field, key in _TOPOLOGY.items():
                setattr(metadata, field, getattr(metadata, field) or top_owner.annotations.get(key, ""))
        gvk, uid = type(obj).gvk, obj.metadata.uid or ""
        parts = (kai.POD_GROUP_NAME_PREFIX, gang.name, gang.pod_group, gang.replica, uid)
        metadata.name = "-".join(filter(None, parts))
        metadata.owner = OwnerReference(api_version=gvk.api_version, kind=gvk.kind, name=obj.name, uid=uid)
        where = f"{gang.kind}.{GROUP} {pod.namespace}/{gang.name}"
        with failing(f"{where}: "):
            policy = _policy(obj, gang)
            metadata.min_available = 1
            if fields.has_field(policy, "gang"):
                count = fields.nested_int32(policy, "gang", "minCount")
                if count is None or count < 1:
                    raise GroupingError(f"gang.minCount must be at least 1, not {count}")
                metadata.min_available = count
            name = fields.nested_string(obj, "spec", "priorityClassName")
            # Node labels of which all pods of the gang must share a value.
            constraints = fields.nested_list(obj, "spec", "schedulingConstraints", "topology") or ()
            levels = [_string(each, "key") for each in constraints]
            composite = fields.nested_string(obj, "spec", "parentCompositePodGroupName")
        is_labelled = any(kai.PRIORITY_LABEL_KEY in each.labels for each in (top_owner, *other_owners, pod))
        ignored = []
        if name and not is_labelled:
            if await self._default.exists(name):
                # As for Kubernetes' own scheduler, the class of the gang precedes the class of its pods.
                metadata.priority_class_name = name
            elif not inputs().unread:
                ignored.append(f"spec.priorityClassName has no effect: PriorityClass {name} does not exist")
        if levels and not (metadata.required_topology_level or metadata.preferred_topology_level):
            if metadata.topology and len(levels) == 1:
                metadata.required_topology_level = levels[0]
            else:
                ignored.append(
                    "spec.schedulingConstraints.topology has no effect: KAI-Scheduler needs one level, and the"
                    f" annotation {kai.TOPOLOGY_KEY} of the top owner, which names a Topology"
                )
        if composite:
            ignored.append(
                f"spec.parentCompositePodGroupName has no effect: the gang starts independently of the other gangs of"
                f" {composite}"
            )
        metadata.ignored = f"{where}: {'; '.join(ignored)}" if ignored else ""
        return metadata

    async def _read(self, namespace: str) -> Unstructured:
        """Return the object that the gang names.

        Raises:
            GroupingError: the object does not exist, its name is invalid, or its kind is not served.
            StatusError, RestError: the object cannot be read.
        """
        gang = self._gang
        where = f"{gang.kind}.{GROUP} {namespace}/{gang.name}"
        if not names.is_path_segment(gang.name):
            raise GroupingError(f"the pod names {where}, which is not a valid name")
        versions = KINDS[gang.kind]
        known = self._served.get(gang.kind)
        for version in versions if known is None else (known, *versions):
            try:
                found = await self._default.reader.get(unstructured(version), (namespace, gang.name))
            except NoKindMatchError:
                continue
            except NotFoundError as error:
                if not error.names_object:
                    continue  # discovery still lists this version, but the server no longer serves it
                raise GroupingError(f"the pod names {where}, which does not exist") from error
            self._served[gang.kind] = version
            return found
        raise GroupingError(f"the pod names {where}, which is of a kind that the API server does not serve")


def _policy(obj: Unstructured, gang: NativeGang) -> dict[str, JSON]:
    """Return the scheduling policy of the gang."""
    if gang.kind == "PodGroup":
        return fields.nested_map(obj, "spec", "schedulingPolicy") or {}
    for entry in fields.nested_list(obj, "spec", "podGroups") or ():
        if isinstance(entry, dict) and entry.get("name") == gang.pod_group:
            return fields.nested_map(entry, "policy") or {}
    raise GroupingError(f"spec.podGroups has no pod group {quote(gang.pod_group)}")


def _string(holder: JSON, name: str) -> str:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""
