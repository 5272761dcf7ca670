# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runtime patches: changes that users and controllers make to the runtime of one TrainJob."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from controller_runtime.apis.core.v1 import (
    Affinity,
    EnvVar,
    LocalObjectReference,
    PodSchedulingGate,
    PodSecurityContext,
    SecurityContext,
    Toleration,
    Volume,
    VolumeMount,
)
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import CRD, Int64, Rule, Struct

FIELD_IMMUTABLE: Final = Rule("self == oldSelf", "field is immutable")

_BY_NAME: Final = ("name",)
_NAMED: Final = CRD(min_length=1, max_length=253)
_ITEMS: Final = CRD(list_type="map", list_map_keys=_BY_NAME, max_items=128)
_FIXED_VOLUMES: Final = CRD(list_type="map", list_map_keys=_BY_NAME, max_items=128, rules=(FIELD_IMMUTABLE,))
_FIXED_LIST: Final = CRD(list_type="map", list_map_keys=_BY_NAME, max_items=64, rules=(FIELD_IMMUTABLE,))


class ContainerPatch(Struct):
    """Changes to one container of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the container; the runtime must have it."""
    env: Annotated[list[EnvVar] | None, _ITEMS] = None
    """Environment variables, merged over the runtime's.

    They cannot be set for the containers node, dataset-initializer and model-initializer, whose variables are set in
    trainer and initializer.
    """
    volume_mounts: Annotated[list[VolumeMount] | None, _ITEMS] = None
    """Volumes to mount."""
    security_context: SecurityContext | None = None
    """Security options of the container."""


class PodSpecPatch(Struct):
    """Changes to the spec of a pod template."""

    service_account_name: Annotated[str | None, CRD(max_length=253, rules=(FIELD_IMMUTABLE,))] = None
    """Service account of the pods; it cannot be changed later."""
    volumes: Annotated[list[Volume] | None, _FIXED_VOLUMES] = None
    """Volumes of the pods; they cannot be changed later."""
    init_containers: Annotated[list[ContainerPatch] | None, _FIXED_LIST] = None
    """Changes to init containers; they cannot be changed later."""
    containers: Annotated[list[ContainerPatch] | None, _FIXED_LIST] = None
    """Changes to containers; they cannot be changed later."""
    image_pull_secrets: Annotated[list[LocalObjectReference] | None, _FIXED_LIST] = None
    """Secrets to pull images with; they cannot be changed later."""
    security_context: Annotated[PodSecurityContext | None, CRD(rules=(FIELD_IMMUTABLE,))] = None
    """Security options of the pods; they cannot be changed later."""
    node_selector: dict[str, str] | None = None
    """Labels of the nodes that the pods may run on."""
    affinity: Affinity | None = None
    """Scheduling constraints of the pods."""
    tolerations: Annotated[list[Toleration] | None, CRD(list_type="atomic", max_items=128)] = None
    """Taints that the pods tolerate."""
    scheduling_gates: Annotated[
        list[PodSchedulingGate] | None, CRD(list_type="map", list_map_keys=_BY_NAME, max_items=16)
    ] = None
    """Gates that block the pods from scheduling."""
    termination_grace_period_seconds: Annotated[Int64 | None, CRD(minimum=0, rules=(FIELD_IMMUTABLE,))] = None
    """Seconds that the pods have to terminate; it cannot be changed later."""
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"service_account_name", "termination_grace_period_seconds"}
    )


class PodTemplatePatch(Struct):
    """Changes to a pod template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations, merged over the pod template's."""
    spec: PodSpecPatch | None = None
    """Changes to the pod template's spec, merged over it."""


class JobSpecPatch(Struct):
    """Changes to the spec of a job template."""

    template: PodTemplatePatch | None = None
    """Changes to the job's pod template."""


class JobTemplatePatch(Struct):
    """Changes to a job template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations, merged over the job template's."""
    spec: JobSpecPatch | None = None
    """Changes to the job template's spec."""


class ReplicatedJobPatch(Struct):
    """Changes to one replicated job of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job; the runtime must have it."""
    template: JobTemplatePatch | None = None
    """Changes to the replicated job's template."""


class JobSetSpecPatch(Struct):
    """Changes to the spec of the JobSet template."""

    replicated_jobs: Annotated[
        list[ReplicatedJobPatch] | None, CRD(list_type="map", list_map_keys=_BY_NAME, max_items=100)
    ] = None
    """Changes to replicated jobs."""


class JobSetTemplatePatch(Struct):
    """Changes to the JobSet template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations, merged over the JobSet's."""
    spec: JobSetSpecPatch | None = None
    """Changes to the JobSet's spec."""


class TrainingRuntimeSpecPatch(Struct):
    """Changes to the spec of a training runtime."""

    template: JobSetTemplatePatch | None = None
    """Changes to the JobSet template."""


class RuntimePatch(Struct):
    """Changes that one manager, a user's tool or a controller, makes to the training runtime of a TrainJob."""

    manager: Annotated[str, CRD(min_length=1, max_length=253, rules=(FIELD_IMMUTABLE,))] = ""
    """The writer of this patch, as a domain-prefixed path such as example.com/tool; each writer has one patch."""
    time: Annotated[str | None, CRD(format="date-time")] = None
    """When the patch was last changed; set by the server."""
    training_runtime_spec: TrainingRuntimeSpecPatch | None = None
    """Changes to the training runtime's spec."""
