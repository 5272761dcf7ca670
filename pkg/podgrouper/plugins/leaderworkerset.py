# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets: one group for each replica (a leader and its workers), in segments if a segment size is set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import OLDEST, Metadata, Rules, SubGroupMetadata, TopologyConstraintMetadata

from . import fields, segments
from .defaultgrouper import DefaultGrouper
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

_LEADER: Final = "leader"
_WORKERS: Final = "workers"


# +kubebuilder:rbac:groups=leaderworkerset.x-k8s.io,resources=leaderworkersets,verbs=get;list;watch
class LwsGrouper(DelegatingGrouper):
    """Groups one replica of a LeaderWorkerSet."""

    name = "LWS Grouper"
    reads = Reads.SPEC

    def __init__(self, default: DefaultGrouper, rules: Rules = OLDEST) -> None:
        super().__init__(default)
        self._rules = rules

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Require all pods of the replica, or only the leader.

        Only the leader is required if the workers wait until it is ready, and ``pod`` is the leader and has no node
        yet.

        Raises:
            GroupingError: the spec is malformed, or the pod's labels do not match its segments.
        """
        size = _group_size(owner)
        policy = _startup_policy(owner)
        if self._rules is not Rules.V0_13:
            _check_worker_index(pod)
        if policy == LEADER_READY:
            size = _size_while_leader_starts(pod, size)
        elif policy != LEADER_CREATED:
            raise GroupingError(f"unknown startupPolicy: {policy}")
        metadata.min_available = size
        metadata.sub_groups = _sub_groups(owner, pod, size, self._rules)
        metadata.name += _name_suffix(pod)


def _check_worker_index(pod: Pod) -> None:
    text = pod.labels.get(WORKER_INDEX_LABEL)
    if text is None:
        return
    try:
        index = atoi(text)
    except ValueError as error:
        raise _no_worker_index(pod, error) from error
    if index < 0:
        raise GroupingError(f"workerIndex {text} is not valid. It must be bigger than 0")


def _no_worker_index(pod: Pod, error: ValueError) -> GroupingError:
    return GroupingError(f"failed to get worker index from pod {pod.namespace}/{pod.name}: {error}")


def _group_size(lws: Unstructured) -> int:
    with failing(f"failed to get leaderWorkerTemplate.size from LWS {_named(lws)} with error: "):
        size = fields.nested_int64(lws, "spec", "leaderWorkerTemplate", "size")
    if size is None:
        raise GroupingError(f"leaderWorkerTemplate.size not found in LWS {_named(lws)}")
    if size <= 0:
        raise GroupingError(f"invalid leaderWorkerTemplate.size {size} in LWS {_named(lws)}")
    return fields.int32(size)


def _startup_policy(lws: Unstructured) -> str:
    with failing(f"failed to get startupPolicy from LWS {_named(lws)}: "):
        policy = fields.nested_string(lws, "spec", "startupPolicy")
    return LEADER_CREATED if policy is None else policy


def _size_while_leader_starts(pod: Pod, size: int) -> int:
    if _is_leader(pod) and not pod.spec.node_name:
        return 1
    try:
        return fields.int32(atoi(pod.annotations[SIZE_ANNOTATION]))
    except (KeyError, ValueError):
        return size


def _name_suffix(pod: Pod) -> str:
    try:
        return f"-group-{atoi(pod.labels[GROUP_INDEX_LABEL])}"
    except (KeyError, ValueError):
        return ""


def _is_leader(pod: Pod) -> bool:
    return pod.labels.get(WORKER_INDEX_LABEL) == "0"


def _sub_groups(lws: Unstructured, pod: Pod, size: int, rules: Rules) -> list[SubGroupMetadata]:
    with failing(f"failed to get sub group policy for LWS {_named(lws)}: "):
        layout = _layout(lws, size)
    if layout is None:
        return _leader_and_workers(pod, size)
    if rules is not Rules.V0_13:
        _check_number(layout.number)
    with failing(f"failed to get segment topology constraints for LWS {_named(lws)}: "):
        constraint = _topology_constraint(lws, pod)
    groups = layout.sub_groups(pod, constraint)
    if rules is not Rules.V0_13:
        _count_sub_groups(groups)
    return groups


def _count_sub_groups(groups: list[SubGroupMetadata]) -> None:
    """Make a subgroup that contains other subgroups require all of these, instead of a number of pods."""
    children = Counter(each.parent for each in groups)
    for group in groups:
        if group.name in children:
            group.min_sub_group, group.min_available = children[group.name], 0


def _check_number(number: int) -> None:
    if number > segments.MAX_SUBGROUPS_V0_17:
        raise GroupingError(
            f"number of subgroups segments {number} is greater than max allowed segmentation"
            f" {segments.MAX_SUBGROUPS_V0_17}"
        )


def _leader_and_workers(pod: Pod, size: int) -> list[SubGroupMetadata]:
    """Return a subgroup for the leader and, if there are workers, one for them. Add the pod to its subgroup."""
    groups = [SubGroupMetadata(name=_LEADER, min_available=1)]
    if size > 1:
        groups.append(SubGroupMetadata(name=_WORKERS, min_available=size - 1))
    own = 0 if _is_leader(pod) else 1
    return _with(pod, groups, own) if own < len(groups) else groups


def _topology_constraint(lws: Unstructured, pod: Pod) -> TopologyConstraintMetadata | None:
    with failing(f"failed to get workerTemplate from LWS {_named(lws)}: "):
        template = fields.nested_map(lws, "spec", "leaderWorkerTemplate", "workerTemplate")
    return None if template is None else segments.topology_constraint(pod, template, lws.annotations)


def _layout(lws: Unstructured, size: int) -> _Layout | None:
    """Return the layout of the replica, or None if no segment size is set."""
    segment_size = _segment_size(lws)
    if segment_size is None:
        return None
    if segment_size <= 1:
        raise GroupingError(f"segmentSize {segment_size} is not valid. It must be greater than 1")
    if segment_size > size:
        raise GroupingError(f"segmentSize {segment_size} is greater than replicasSize {size}")
    policy = fields.nested_string(lws, "spec", "leaderWorkerTemplate", "subGroupPolicy", "subGroupPolicyType")
    return _Layout(size, segment_size, LEADER_WORKER if policy is None else policy)


def _segment_size(lws: Unstructured) -> int | None:
    """Return the segment size from the spec, else from the set's annotation, else from the worker template's."""
    template = ("spec", "leaderWorkerTemplate")
    if (size := fields.nested_int64(lws, *template, "subGroupPolicy", "subGroupSize")) is not None:
        return size
    text, where = lws.annotations.get(kai.SEGMENT_SIZE_KEY), "LWS"
    if text is None:
        try:
            text = fields.nested_string(
                lws, *template, "workerTemplate", "metadata", "annotations", kai.SEGMENT_SIZE_KEY
            )
        except AccessorError:
            return None
        where = "workerTemplate of LWS"
    if text is None:
        return None
    try:
        return atoi(text)
    except ValueError as error:
        raise GroupingError(
            f"invalid segment size annotation {text} in {where} {_named(lws)}: {error}"
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
        own = self._segment_of(pod)
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
        # Upstream counts the leader into the only segment, even an extra leader.
        workers = self.size - 1 - last * self.segment_size
        groups[-1].min_available = workers + (last == 0) if self._leader_is_extra else workers + 1
        return groups

    def _segment_of(self, pod: Pod) -> int:
        try:
            return self._segment(atoi(pod.labels.get(WORKER_INDEX_LABEL, "")))
        except ValueError as error:
            raise _no_worker_index(pod, error) from error

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


def _named(lws: Unstructured) -> str:
    return f"{lws.namespace}/{lws.name}"
