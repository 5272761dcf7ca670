# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The versions of the gang API: the kind that represents a gang, and the field in which pods name their gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.core.v1 import PodSchedulingGroup, PodSpec
from controller_runtime.machinery import Object

from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1
from pkg.apis.scheduling.common import GangSchedulingPolicy, PodGroupSchedulingPolicy
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.util import trainjob

KINDS: Final[Mapping[str, type[Object]]] = {
    "v1beta1": v1beta1.PodGroup,
    "v1alpha2": v1alpha2.PodGroup,
    "v1alpha1": v1alpha1.Workload,
}
"""The kind that represents a gang in each version, newest version first."""
NEWEST: Final = "v1beta1"
POD_FIELD: Final[Mapping[str, str]] = {
    "v1beta1": "schedulingGroup",
    "v1alpha2": "schedulingGroup",
    "v1alpha1": "workloadRef",
}
"""The field of a pod's spec that names the gang, in each version."""
JOB_SET: Final[Mapping[str, str]] = {"v1beta1": "0.12", "v1alpha2": "0.12", "v1alpha1": "0.11"}
"""For each version, the oldest release of JobSet whose CRD has the field in :data:`POD_FIELD`."""

_POD_GROUP: Final = "gang"
"""The name of the only pod group in a Workload."""


def join(pod: PodSpec, version: str, name: str) -> None:
    """Make the pods of a template members of the gang ``name``."""
    if version == "v1alpha1":
        reference = {"name": name, "podGroup": _POD_GROUP}
        pod.set_unknown_fields({**pod.unknown_fields, POD_FIELD[version]: reference})
    else:
        pod.scheduling_group = PodSchedulingGroup(pod_group_name=name)


def new_gang(version: str, train_job: TrainJob, min_count: int, priority_class: str | None) -> Object:
    """Return the object that represents a TrainJob's gang.

    The PriorityClass is set only in v1beta1: in older versions, priorities of gangs need another feature gate.
    """
    metadata = trainjob.child_metadata(train_job)
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=min_count))
    if version == "v1alpha1":
        kind = TrainJob.gvk
        spec = v1alpha1.WorkloadSpec(
            controller_ref=v1alpha1.TypedLocalObjectReference(
                api_group=kind.group, kind=kind.kind, name=train_job.name
            ),
            pod_groups=[v1alpha1.PodGroup(name=_POD_GROUP, policy=policy)],
        )
        return v1alpha1.Workload(metadata=metadata, spec=spec)
    if version == "v1alpha2":
        return v1alpha2.PodGroup(metadata=metadata, spec=v1alpha2.PodGroupSpec(scheduling_policy=policy))
    newest = v1beta1.PodGroupSpec(scheduling_policy=policy)
    if priority_class:
        newest.priority_class_name = priority_class
    return v1beta1.PodGroup(metadata=metadata, spec=newest)
