# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets: one group for each replica (a leader and its workers), in segments if a segment size is set."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.constants import kai
from pkg.podgrouper.podgroup import Metadata, Rules, SubGroupMetadata

from . import fields, schedulers, segments
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
        """Require all pods of the replica, or only the leader or the workers.

        Only the leader is required if the workers wait until it is ready, and ``pod`` is the leader and has no node
        yet. Pods that another scheduler binds are not required.

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
        elsewhere = _bound_elsewhere(owner, pod)
        if _WORKERS in elsewhere or (policy == LEADER_READY and _is_leader(pod) and not pod.spec.node_name):
            size = 1
        metadata.min_available = size
        metadata.sub_groups = _sub_groups(owner, pod, size, self._rules)
        if _LEADER in elsewhere:
            metadata.min_available -= 1
            _remove_leader(metadata.sub_groups)
        with suppress(KeyError, ValueError):
            metadata.name += f"-group-{atoi(pod.labels[GROUP_INDEX_LABEL])}"
        role = _LEADER if _is_leader(pod) else _WORKERS
        if role in elsewhere:  # the pod's own template names another scheduler
            metadata.set_apart(role)


def _bound_elsewhere(lws: Unstructured, pod: Pod) -> set[str]:
    workers = fields.nested_field(lws, *_TEMPLATE, "workerTemplate")
    leader = fields.nested_field(lws, *_TEMPLATE, "leaderTemplate")
    roles = {_LEADER: workers if leader is None else leader, _WORKERS: workers}
    return schedulers.bound_elsewhere(pod, roles)


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
    """Return the subgroups of a replica of ``size`` pods, including the leader. Add the pod to its subgroup.

    With LeaderWorker, the leader and the workers of the first segment have subgroups below that segment. With
    LeaderExcluded, the leader has a subgroup beside the segments.
    """
    where, is_newer = f"LWS {lws.namespace}/{lws.name}", rules is not Rules.V0_13
    segment_size = None
    if size > 1:
        with failing(f"failed to get sub group policy for {where}: "):
            segment_size = _segment_size(lws)
            if segment_size is not None and segment_size <= 1:
                raise GroupingError(f"segmentSize {segment_size} is not valid. It must be greater than 1")
            if segment_size is not None and segment_size > size:
                raise GroupingError(f"segmentSize {segment_size} is greater than replicasSize {size}")
            policy = fields.nested_string(lws, *_TEMPLATE, "subGroupPolicy", "subGroupPolicyType")
    if segment_size is None:
        groups = [SubGroupMetadata(name=_LEADER, min_available=1)]
        if size > 1:
            groups.append(SubGroupMetadata(name=_WORKERS, min_available=size - 1))
        own = 0 if _is_leader(pod) else 1
        return _with(pod, groups, own) if own < len(groups) else groups
    # If the workers alone fill the segments, the leader is an extra pod of the first segment.
    leader_is_extra = (size - 1) % segment_size == 0
    last = (size - 1 - leader_is_extra) // segment_size
    if is_newer and last >= segments.MAX_SUBGROUPS_V0_17:
        raise GroupingError(
            f"number of subgroups segments {last + 1} is greater than max allowed segmentation"
            f" {segments.MAX_SUBGROUPS_V0_17}"
        )
    with failing(
        f"failed to get segment topology constraints for {where}: failed to get workerTemplate from {where}: "
    ):
        template = fields.nested_map(lws, *_TEMPLATE, "workerTemplate")
    constraint = None if template is None else segments.topology_constraint(pod, template, lws.annotations)
    segments.check_number(last + 1)
    groups = [
        SubGroupMetadata(name=f"segment-{index}", min_available=segment_size, topology_constraints=constraint)
        for index in range(last + 1)
    ]
    groups[-1].min_available = size - last * segment_size - leader_is_extra
    first = groups[0]
    worker = _worker_index(pod)
    own = divide(worker - 1 if worker != 0 and leader_is_extra else worker, segment_size)[0]
    if policy in (None, LEADER_WORKER):
        first.min_available += leader_is_extra
        groups += [
            SubGroupMetadata(name=_LEADER, parent=first.name, min_available=1),
            SubGroupMetadata(name=_WORKERS, parent=first.name, min_available=first.min_available - 1),
        ]
        if _is_leader(pod) or own == 0:
            own = len(groups) - 2 + (not _is_leader(pod))
    elif policy == LEADER_EXCLUDED:
        if not leader_is_extra:
            raise GroupingError(
                f"replicasSize {size} is not divisible by segmentSize {segment_size}."
                " LeaderExcluded policy is only supported when replicasSize is divisible by segmentSize."
            )
        groups.insert(0, SubGroupMetadata(name=_LEADER, min_available=1))
        own += not _is_leader(pod)
    _with(pod, groups, own)
    if is_newer:
        # A subgroup that contains other subgroups requires all of these, instead of a number of pods.
        children = Counter(each.parent for each in groups)
        for group in groups:
            if group.name in children:
                group.min_sub_group, group.min_available = children[group.name], 0
    return groups


def _remove_leader(groups: list[SubGroupMetadata]) -> None:
    """Remove the leader's subgroup, and the leader or its subgroup from what the first segment requires."""
    leader = next((group for group in groups if group.name == _LEADER), None)
    if leader is None:  # an unknown policy of subgroups has none
        return
    groups.remove(leader)
    for group in groups:
        if group.name == leader.parent:
            if group.min_sub_group is None:
                group.min_available -= 1
            else:
                group.min_sub_group -= 1


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


def _with(pod: Pod, groups: list[SubGroupMetadata], index: int) -> list[SubGroupMetadata]:
    """Add the pod to the group at ``index``."""
    if not 0 <= index < len(groups):
        raise GroupingError(
            f"pod {pod.namespace}/{pod.name} belongs to segment {index}, but there are {len(groups)} subgroups"
        )
    groups[index].pods_references.append(pod.name)
    return groups
