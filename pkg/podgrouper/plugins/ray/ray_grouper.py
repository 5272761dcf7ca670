# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The groupers of Ray's kinds: the head and the worker groups of a RayCluster start at once.

Pods of KubeRay's Jobs, such as the submitter of a RayJob, run before or after the nodes of the cluster, or beside them.
They are in a group of their own, because KAI's scheduler never binds a pod that is in no subgroup of a group with
subgroups. For the same reason, workers that remain of a worker group without replicas have a group of their own, and so
has the new cluster if an upgrade of a RayService adds or renames worker groups.

If an autoscaler changes the number of workers, only the minimum is required: the scheduler evicts a running cluster
whose group requires more pods than there is room for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar, Final

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON, GroupKind, Object, Unstructured, unstructured
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.gojson import go_text

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai
from pkg.podgrouper.plugins import fields, schedulers, segments
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.plugins.delegating import ReadingGrouper
from pkg.podgrouper.plugins.errors import AccessorError, GroupingError
from pkg.podgrouper.plugins.grouper import Reads, fitting, runs_in
from pkg.podgrouper.podgroup import Metadata, Rules, SubGroupMetadata, TopologyConstraintMetadata

PRIORITY_CLASS_LABEL: Final = "ray.io/priority-class-name"
NODE_GROUP_LABEL: Final = "ray.io/group"
HEAD_GROUP: Final = "headgroup"

_JOB: Final = GroupKind("batch", "Job")
_log: Final = log.logger_from("podgrouper")

_SubGroups = dict[str, SubGroupMetadata]


# +kubebuilder:rbac:groups=ray.io,resources=rayclusters;raycronjobs;rayjobs;rayservices,verbs=get;list;watch
class RayGrouper(ReadingGrouper):
    """Groups the pods of a RayCluster: the head and each worker group are subgroups."""

    name = DefaultGrouper.name
    reads = Reads.SPEC
    cluster_name_paths: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Paths to the names of RayClusters. The first cluster that exists is used. Empty if the owner is the cluster."""

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *other_owners: Object
    ) -> Metadata:
        """Return the owner's group, with the size and the subgroups of its cluster, or the group of a pod of a Job.

        Raises:
            GroupingError: the owner names no cluster, or the cluster is malformed.
            StatusError: the cluster cannot be read.
        """
        metadata = await self._default.get_pod_group_metadata(top_owner, pod)
        metadata.priority_class_name = top_owner.labels.get(
            PRIORITY_CLASS_LABEL, metadata.priority_class_name
        )
        is_of_job = bool(other_owners) and other_owners[0].gvk.group_kind == _JOB
        if is_of_job and not runs_in(pod, metadata.name):
            metadata.name += f"-{other_owners[0].name}"
            return metadata
        cluster = await self._cluster(top_owner)
        sub_groups = self._sub_groups(cluster, pod)
        if other_owners and other_owners[0].gvk.kind == cluster.gvk.kind:
            sub_groups = await self._of_own_cluster(metadata, cluster, sub_groups, pod, other_owners[0].name)
        metadata.min_available = fields.int32(sum(each.min_available for each in sub_groups.values()))
        existing = await self._existing(metadata.namespace, metadata.name)
        if existing is None or existing.spec.sub_groups:  # an older release created groups without subgroups
            metadata.sub_groups = [*sub_groups.values()]
            # KubeRay sets the label of each pod. Its value is empty if the name of the worker group is.
            label = pod.labels.get(NODE_GROUP_LABEL)
            parts = {**{each.name: each for each in metadata.sub_groups}, **sub_groups}
            if label in parts:
                parts[label].pods_references.append(pod.name)
            elif label is not None and not runs_in(pod, metadata.name):
                metadata.set_apart(fitting(label))
            else:
                _log.debug("Ray pod is in no subgroup", namespace=pod.namespace, name=pod.name, group=label)
        return metadata

    async def _cluster(self, owner: Unstructured) -> Unstructured:
        """Return the first cluster that the owner reports and that exists.

        If the active cluster of a RayService is deleted, KubeRay reports it until the pending one is ready.
        """
        if not self.cluster_name_paths:
            return owner
        reported = (fields.nested_string(owner, *path) for path in self.cluster_name_paths)
        names = [name for name in reported if name is not None]
        if not names or not names[0]:
            raise GroupingError(
                f"failed to extract rayClusterName for {owner.namespace}/{owner.name} of kind {owner.kind}."
                " Please make sure that the ray-operator is up and a rayCluster child-object has been created"
            )
        kind = unstructured(owner.gvk._replace(kind="RayCluster"))
        *others, last = filter(None, names)
        for name in others:
            with suppress(NotFoundError):
                return await self._client.get(kind, (owner.namespace, name))
        return await self._client.get(kind, (owner.namespace, last))

    async def _of_own_cluster(
        self,
        metadata: Metadata,
        cluster: Unstructured,
        sub_groups: _SubGroups,
        pod: Pod,
        own: str,
    ) -> _SubGroups:
        """Name the group after the pod's own cluster if that is necessary, and return the subgroups of the group.

        ``cluster`` is the cluster that the top owner reports, and ``own`` is the name of the pod's own cluster. Both
        differ while a RayService is upgraded. The cluster that the upgrade has created keeps its group afterwards.
        """
        if own == cluster.name:
            if await self._existing(metadata.namespace, f"{metadata.name}-{own}") is not None:
                metadata.name += f"-{own}"
            return sub_groups
        found = self._sub_groups(await self._client.get(type(cluster), (cluster.namespace, own)), pod)
        if found.keys() <= sub_groups.keys():
            reported = await self._existing(metadata.namespace, f"{metadata.name}-{cluster.name}")
            if reported is None:
                return sub_groups
        if not runs_in(pod, metadata.name):
            metadata.name += f"-{own}"
        return found

    def _sub_groups(self, cluster: Unstructured, pod: Pod) -> _SubGroups:
        """Return the subgroups of the head and of the worker groups that have pods, by the label of their pods.

        KubeRay counts the pods of a worker group by this label. If worker groups have the same name, it creates the
        pods of one and deletes those that exceed the number of the other, so only the smaller number always exists.
        The head counts as a pod of a worker group that has its name. Groups that another scheduler binds are left out.
        """
        head = SubGroupMetadata(name=HEAD_GROUP, min_available=1)
        with_topology = self._rules is not Rules.V0_13
        roles: dict[str, JSON] = {HEAD_GROUP: fields.nested_field(cluster, "spec", "headGroupSpec")}
        if with_topology:
            spec = fields.nested_map(cluster, "spec", "headGroupSpec")
            head.topology_constraints = _topology(spec or {}, "headGroupSpec")
        is_elastic = fields.nested_field(cluster, "spec", "enableInTreeAutoscaling") is True
        groups: _SubGroups = {HEAD_GROUP: head}
        pods_of: dict[str, int | None] = {}
        for index, spec in enumerate(fields.nested_list(cluster, "spec", "workerGroupSpecs") or []):
            if not isinstance(spec, dict):
                raise GroupingError(f"spec.workerGroupSpecs[{index}] is no map: {go_text(spec)}")
            unnamed = f"worker-group-{index}"
            try:
                label = fields.nested_string(spec, "groupName")
            except AccessorError:
                label = None
            label = unnamed if label is None else label
            pods = _required_pods(spec, is_elastic=is_elastic)
            others = pods_of.get(label, pods)
            pods_of[label] = None if pods is None or others is None else min(pods, others)
            if pods is None or label in groups:
                continue
            roles[label] = spec
            groups[label] = group = SubGroupMetadata(name=label or unnamed)
            if with_topology:
                group.topology_constraints = _topology(spec, f"workerGroupSpecs.{group.name}")
        head.min_available = max(1, pods_of.pop(HEAD_GROUP, None) or 1)
        for label, pods in pods_of.items():
            if pods is None:
                groups.pop(label, None)
            else:
                groups[label].min_available = pods
        for label in schedulers.bound_elsewhere(pod, {label: roles[label] for label in groups}, "template"):
            del groups[label]
        return groups

    async def _existing(self, namespace: str, name: str) -> PodGroup | None:
        try:
            return await self._client.get(PodGroup, (namespace, name))
        except NotFoundError:
            return None
        except StatusError as error:
            _log.debug("Failed to get existing PodGroup", name=name, error=error)
            return None


class RayClusterGrouper(RayGrouper):
    """Groups a RayCluster that has no owner."""


class RayJobGrouper(RayGrouper):
    """Groups a RayJob; the operator writes the cluster's name into its status."""

    reads = Reads.OBJECT
    cluster_name_paths = (("status", "rayClusterName"),)


class RayServiceGrouper(RayGrouper):
    """Groups a RayService by its active cluster, or by the pending one; their names are in its status."""

    reads = Reads.OBJECT
    cluster_name_paths = (
        ("status", "activeServiceStatus", "rayClusterName"),
        ("status", "pendingServiceStatus", "rayClusterName"),
    )


def _topology(spec: dict[str, JSON], where: str) -> TopologyConstraintMetadata | None:
    """Return the topology constraint in the annotations of a group's template; None if they set no level."""
    topology, required, preferred = (
        fields.nested_string(spec, "template", "metadata", "annotations", key) or ""
        for key in (
            kai.TOPOLOGY_KEY,
            kai.TOPOLOGY_REQUIRED_PLACEMENT_KEY,
            kai.TOPOLOGY_PREFERRED_PLACEMENT_KEY,
        )
    )
    if (required or preferred) and not topology:
        raise GroupingError(
            f"topology annotation ({kai.TOPOLOGY_KEY}) is required for {where} when topology placement annotations"
            " are set"
        )
    return segments.placement(topology, required, preferred)


def _required_pods(spec: dict[str, JSON], *, is_elastic: bool) -> int | None:
    """Return how many pods of a worker group are required, or None if KubeRay creates no pods for the group.

    These are ``minReplicas`` times ``numOfHosts`` pods. If ``minReplicas`` is 0, ``replicas`` is used instead, unless
    an autoscaler sets them (``is_elastic``). As KubeRay does, raise ``replicas`` to ``minReplicas`` and lower them to
    ``maxReplicas``. If ``minReplicas`` exceeds ``maxReplicas``, releases of KubeRay before v1.6 create ``maxReplicas``
    pods and later ones may create ``minReplicas``; the smaller number is required.
    """
    if fields.nested_bool(spec, "suspend"):
        return None
    replicas = fields.nested_int64(spec, "replicas") or 0
    least = max(0, fields.nested_int64(spec, "minReplicas") or 0)
    most = fields.nested_int64(spec, "maxReplicas")
    desired = max(replicas, least)
    if most is not None:
        desired = min(desired, most)
    hosts = fields.nested_int64(spec, "numOfHosts")
    hosts = 1 if hosts is None else hosts
    if desired <= 0 or hosts <= 0:
        return None
    needed = min(least, desired) if least or is_elastic else desired
    return fields.int32(needed * hosts)
