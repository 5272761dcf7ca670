# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets: one group for each replica (a leader and its workers), in segments if a segment size is set."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata, Rules, SubGroupMetadata, TopologyConstraintMetadata

from . import fields, segments
from .delegating import DelegatingGrouper
from .errors import AccessorError, GroupingError, failing
from .gonumbers import atoi, divide
from .grouper import Reads

SIZE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/size"
GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_READY: Final = "LeaderReady"
LEADER_CREATED: Final = "LeaderCreated"
LEADER_WORKER: Final = "LeaderWorker"
LEADER_EXCLUDED: Final = "LeaderExcluded"

_TEMPLATE: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final = "leader"
_WORKERS: Final = "workers"


# +kubebuilder:rbac:groups=leaderworkerset.x-k8s.io,resources=leaderworkersets,verbs=get;list;watch
class LwsGrouper(DelegatingGrouper):
    """Groups one replica of a LeaderWorkerSet."""

    name = "LWS Grouper"
    reads = Reads.SPEC

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Require all pods of the replica, or only the leader.

        Only the leader is required if the workers wait until it is ready, and ``pod`` is the leader and has no node
        yet.

        Raises:
            GroupingError: the spec is malformed, or the pod's labels do not match its segments.
        """
        where = f"LWS {owner.namespace}/{owner.name}"
        with failing(f"failed to get leaderWorkerTemplate.size from {where} with error: "):
            size = fields.nested_int64(owner, *_TEMPLATE, "size")
        if size is None:
            raise GroupingError(f"leaderWorkerTemplate.size not found in {where}")
        if size <= 0:
            raise GroupingError(f"invalid leaderWorkerTemplate.size {size} in {where}")
        size = fields.int32(size)
        with suppress(
            KeyError, ValueError
        ):  # after an edit, replicas keep their size until they are created again
            size = fields.int32(atoi(pod.annotations[SIZE_ANNOTATION]))
        with failing(f"failed to get startupPolicy from {where}: "):
            policy = fields.nested_string(owner, "spec", "startupPolicy")
        index = pod.labels.get(WORKER_INDEX_LABEL)
        if self._rules is not Rules.V0_13 and index is not None and _worker_index(pod) < 0:
            raise GroupingError(f"workerIndex {index} is not valid. It must be bigger than 0")
        if policy not in (None, LEADER_CREATED, LEADER_READY):
            raise GroupingError(f"unknown startupPolicy: {policy}")
        if policy == LEADER_READY and _is_leader(pod) and not pod.spec.node_name:
            size = 1
        metadata.min_available = size
        metadata.sub_groups = _sub_groups(owner, pod, size, self._rules)
        with suppress(KeyError, ValueError):
            metadata.name += f"-group-{atoi(pod.labels[GROUP_INDEX_LABEL])}"


def _is_leader(pod: Pod) -> bool:
    return pod.labels.get(WORKER_INDEX_LABEL) == "0"


def _worker_index(pod: Pod) -> int:
    try:
        return atoi(pod.labels.get(WORKER_INDEX_LABEL, ""))
    except ValueError as error:
        raise GroupingError(
            f"failed to get worker index from pod {pod.namespace}/{pod.name}: {error}"
        ) from error


def _sub_groups(lws: Unstructured, pod: Pod, size: int, rules: Rules) -> list[SubGroupMetadata]:
    """Return the subgroups of a replica of ``size`` pods. Add the pod to its subgroup."""
    where = f"LWS {lws.namespace}/{lws.name}"
    with failing(f"failed to get sub group policy for {where}: "):
        layout = _layout(lws, size) if size > 1 else None
    if layout is None:
        groups = [SubGroupMetadata(name=_LEADER, min_available=1)]
        if size > 1:
            groups.append(SubGroupMetadata(name=_WORKERS, min_available=size - 1))
        own = 0 if _is_leader(pod) else 1
        return _with(pod, groups, own) if own < len(groups) else groups
    if rules is not Rules.V0_13 and layout.number > segments.MAX_SUBGROUPS_V0_17:
        raise GroupingError(
            f"number of subgroups segments {layout.number} is greater than max allowed segmentation"
            f" {segments.MAX_SUBGROUPS_V0_17}"
        )
    with failing(
        f"failed to get segment topology constraints for {where}: failed to get workerTemplate from {where}: "
    ):
        template = fields.nested_map(lws, *_TEMPLATE, "workerTemplate")
    constraint = None if template is None else segments.topology_constraint(pod, template, lws.annotations)
    groups = layout.sub_groups(pod, constraint)
    if rules is not Rules.V0_13:
        # A subgroup that contains other subgroups requires all of these, instead of a number of pods.
        children = Counter(each.parent for each in groups)
        for group in groups:
            if group.name in children:
                group.min_sub_group, group.min_available = children[group.name], 0
    return groups


def _layout(lws: Unstructured, size: int) -> _Layout | None:
    """Return the layout of the replica, or None if no segment size is set."""
    segment_size = _segment_size(lws)
    if segment_size is None:
        return None
    if segment_size <= 1:
        raise GroupingError(f"segmentSize {segment_size} is not valid. It must be greater than 1")
    if segment_size > size:
        raise GroupingError(f"segmentSize {segment_size} is greater than replicasSize {size}")
    policy = fields.nested_string(lws, *_TEMPLATE, "subGroupPolicy", "subGroupPolicyType")
    return _Layout(size, segment_size, LEADER_WORKER if policy is None else policy)


def _segment_size(lws: Unstructured) -> int | None:
    """Return the segment size from the spec, else from the set's annotation, else from the worker template's."""
    if (size := fields.nested_int64(lws, *_TEMPLATE, "subGroupPolicy", "subGroupSize")) is not None:
        return size
    text, where = lws.annotations.get(kai.SEGMENT_SIZE_KEY), "LWS"
    if text is None:
        try:
            annotation = "workerTemplate", "metadata", "annotations", kai.SEGMENT_SIZE_KEY
            text = fields.nested_string(lws, *_TEMPLATE, *annotation)
        except AccessorError:
            return None
        where = "workerTemplate of LWS"
    if text is None:
        return None
    try:
        return atoi(text)
    except ValueError as error:
        raise GroupingError(
            f"invalid segment size annotation {text} in {where} {lws.namespace}/{lws.name}: {error}"
        ) from error


@dataclass(frozen=True)
class _Layout:
    """A replica of ``size`` pods, including the leader, divided into segments.

    If the workers alone fill the segments, the leader is an extra pod of the first segment.
    """

    size: int
    segment_size: int
    policy: str

    def sub_groups(self, pod: Pod, constraint: TopologyConstraintMetadata | None) -> list[SubGroupMetadata]:
        """Return the segments, and the subgroups that the policy adds for the leader. Add the pod to its subgroup.

        With LeaderWorker, the leader and the workers of the first segment have subgroups below that segment. With
        LeaderExcluded, the leader has a subgroup beside the segments.
        """
        groups = self._segments(constraint)
        own = self._segment(_worker_index(pod))
        if self.policy == LEADER_WORKER:
            if self._leader_is_extra:
                groups[0].min_available += 1
            first = groups[0]
            groups += [
                SubGroupMetadata(name=_LEADER, parent=first.name, min_available=1),
                SubGroupMetadata(name=_WORKERS, parent=first.name, min_available=first.min_available - 1),
            ]
            if _is_leader(pod):
                return _with(pod, groups, len(groups) - 2)
            if own == 0:
                return _with(pod, groups, len(groups) - 1)
        elif self.policy == LEADER_EXCLUDED:
            if not self._leader_is_extra:
                raise GroupingError(
                    f"replicasSize {self.size} is not divisible by segmentSize {self.segment_size}."
                    " LeaderExcluded policy is only supported when replicasSize is divisible by segmentSize."
                )
            groups.insert(0, SubGroupMetadata(name=_LEADER, min_available=1))
            own += not _is_leader(pod)
        return _with(pod, groups, own)

    @property
    def number(self) -> int:
        """The number of segments."""
        return self._segment(self.size - 1) + 1

    @property
    def _leader_is_extra(self) -> bool:
        return (self.size - 1) % self.segment_size == 0

    def _segments(self, constraint: TopologyConstraintMetadata | None) -> list[SubGroupMetadata]:
        segments.check_number(self.number)
        last = self.number - 1
        groups = [
            SubGroupMetadata(
                name=f"segment-{index}", min_available=self.segment_size, topology_constraints=constraint
            )
            for index in range(last + 1)
        ]
        workers = self.size - 1 - last * self.segment_size
        groups[-1].min_available = workers + (not self._leader_is_extra)
        return groups

    def _segment(self, worker: int) -> int:
        first = worker - 1 if worker != 0 and self._leader_is_extra else worker
        return divide(first, self.segment_size)[0]


def _with(pod: Pod, groups: list[SubGroupMetadata], index: int) -> list[SubGroupMetadata]:
    """Add the pod to the group at ``index``."""
    if not 0 <= index < len(groups):
        raise GroupingError(
            f"pod {pod.namespace}/{pod.name} belongs to segment {index}, but there are {len(groups)} subgroups"
        )
    groups[index].pods_references.append(pod.name)
    return groups
