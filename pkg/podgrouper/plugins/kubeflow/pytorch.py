# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorchJobs: master and workers as subgroups, the workers in segments if a size is set."""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import JSON, Unstructured

from pkg.constants import kai
from pkg.podgrouper.plugins import fields, segments
from pkg.podgrouper.plugins.errors import GroupingError, failing
from pkg.podgrouper.plugins.gonumbers import atoi, divide
from pkg.podgrouper.podgroup import Metadata, Rules, SubGroupMetadata

from .distributed_common import KubeflowDistributedGrouper

REPLICA_TYPE_LABEL: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"

_MASTER_SPEC: Final = "Master"
_WORKER_SPEC: Final = "Worker"
_MASTER_GROUP: Final = "master"
"""Name of the master's subgroup. The label ``REPLICA_TYPE_LABEL`` of the master's pod has the same value."""
_WORKER_GROUP: Final = "worker"

_Specs = dict[str, JSON]


class PyTorchGrouper(KubeflowDistributedGrouper):
    """Groups a PyTorchJob."""

    name = "PyTorchJob Grouper"
    replica_specs = "pytorchReplicaSpecs"

    async def refine(self, metadata: Metadata, owner: Unstructured, pod: Pod, elsewhere: set[str]) -> None:
        """Put master and workers into subgroups.

        Raises:
            GroupingError: there are no replicas, or the spec or the labels and annotations of segments are invalid.
        """
        metadata.sub_groups = _sub_groups(owner, pod, metadata.min_available, elsewhere, self._rules)
        role = pod.labels.get(REPLICA_TYPE_LABEL)
        if role in {name.lower() for name in elsewhere}:  # the pod's own template names another scheduler
            metadata.set_apart(role)


def _sub_groups(
    job: Unstructured, pod: Pod, needed: int, elsewhere: set[str], rules: Rules
) -> list[SubGroupMetadata]:
    where = f"PyTorchJob {job.namespace}/{job.name}"
    with failing(f"failed to get pytorchReplicaSpecs from {where}. Err: "):
        specs = fields.nested_map(job, "spec", PyTorchGrouper.replica_specs)
    if specs is None:
        raise GroupingError(f"pytorchReplicaSpecs not found in {where}")
    with failing(f"failed to get replicas from pytorchReplicaSpecs[{_MASTER_SPEC}] in {where}. Err: "):
        masters = fields.nested_int32(specs, _MASTER_SPEC, "replicas")
    masters = int(_MASTER_SPEC in specs) if masters is None else max(0, masters)
    if _MASTER_SPEC in elsewhere:
        masters = 0
    sub_groups = []
    if masters:
        references = _references(pod, _MASTER_GROUP)
        sub_groups.append(
            SubGroupMetadata(name=_MASTER_GROUP, min_available=masters, pods_references=references)
        )
    if _WORKER_SPEC in specs and _WORKER_SPEC not in elsewhere:
        sub_groups += _workers(job, specs, pod, max(0, fields.int32(needed - masters)), rules)
    return sub_groups


def _references(pod: Pod, role: str) -> list[str]:
    return [pod.name] if pod.labels.get(REPLICA_TYPE_LABEL) == role else []


def _workers(job: Unstructured, specs: _Specs, pod: Pod, needed: int, rules: Rules) -> list[SubGroupMetadata]:
    """Return the subgroup of the workers and, if a size is set, those of their segments."""
    with failing("failed to get replicas for worker groups. Err: "):
        replicas = fields.nested_int64(specs, _WORKER_SPEC, "replicas")
    workers = SubGroupMetadata(name=_WORKER_GROUP, min_available=needed)
    size = _segment_size(pod, specs)
    if size is None:
        workers.pods_references = _references(pod, _WORKER_GROUP)
        return [workers]
    if not size:
        raise GroupingError(f"segment size on pod {pod.namespace}/{pod.name} must not be 0")
    number, rest = divide(1 if replicas is None else replicas, size)
    number += rest != 0
    if rules is not Rules.V0_13 and number > segments.MAX_SUBGROUPS_V0_17:
        raise GroupingError(
            f"number of subgroups created for the segmentation {number} is greater than max allowed segmentation"
            f" {segments.MAX_SUBGROUPS_V0_17}"
        )
    if rules is not Rules.V0_13 and number == 0:
        workers.pods_references = _references(pod, _WORKER_GROUP)
        return [workers]
    index = _index_of(pod)
    if rules is not Rules.V0_13 and index is not None and index < 0:
        text = pod.labels[REPLICA_INDEX_LABEL]
        raise GroupingError(f"replica index {text} is not valid. It must be bigger than 0")
    segments.check_number(number)
    template = fields.nested_field(specs, _WORKER_SPEC, "template")
    constraint = segments.topology_constraint(
        pod, template if isinstance(template, dict) else {}, job.annotations
    )
    parts = [
        SubGroupMetadata(
            name=f"{_WORKER_GROUP}-{part}",
            parent=_WORKER_GROUP,
            min_available=fields.int32(size),
            topology_constraints=constraint,
        )
        for part in range(number)
    ]
    if index is not None and 0 <= (own := divide(index, size)[0]) < len(parts):
        parts[own].pods_references = [pod.name]
    if rest and parts:
        parts[-1].min_available = fields.int32(rest)
    if rules is not Rules.V0_13:
        workers.min_sub_group, workers.min_available = fields.int32(number), 0
        for part in parts[max(0, divide(needed + size - 1, size)[0]) :]:
            part.min_available = 0  # the job may run without them
    return [workers, *parts]


def _index_of(pod: Pod) -> int | None:
    """Return the worker's index; None if the pod is not a worker."""
    if pod.labels.get(REPLICA_TYPE_LABEL) != _WORKER_GROUP:
        return None
    text = pod.labels.get(REPLICA_INDEX_LABEL)
    if text is None:
        raise GroupingError(f"replica index label not found on pod {pod.namespace}/{pod.name}")
    try:
        return atoi(text)
    except ValueError as error:
        raise GroupingError(f"invalid replica index {text}, err: {error}") from error


def _segment_size(pod: Pod, specs: _Specs) -> int | None:
    """Return the segment size in the pod's annotation, else in the worker template's; None if neither is set.

    As in upstream, only the size in the template is required to be positive.
    """
    if text := pod.annotations.get(kai.SEGMENT_SIZE_KEY):
        return _size(text, f"pod {pod.namespace}/{pod.name}")
    with failing("failed to get segment size from worker podTemplate: "):
        text = fields.nested_string(
            specs, _WORKER_SPEC, "template", "metadata", "annotations", kai.SEGMENT_SIZE_KEY
        )
    if not text:
        return None
    size = _size(text, "worker podTemplate")
    if size <= 0:
        raise GroupingError(f"segment size {text} on worker podTemplate needs to be a positive integer")
    return size


def _size(text: str, where: str) -> int:
    try:
        return atoi(text)
    except ValueError as error:
        raise GroupingError(f"invalid segment size {text} on {where}, err: {error}") from error
