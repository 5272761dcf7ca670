# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runtime patches: changes that users and controllers make to the runtime of one TrainJob."""

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
from controller_runtime.machinery import Struct
from controller_runtime.machinery.crd import Markers, Rule

from pkg.apis.integers import Int64

FIELD_IMMUTABLE: Final = Rule("self == oldSelf", "field is immutable")

_BY_NAME: Final = ("name",)
_NAMED: Final = Markers(min_length=1, max_length=253, required=True)
_ITEMS: Final = Markers(list_type="map", list_map_keys=_BY_NAME, max_items=128)
_FIXED_VOLUMES: Final = Markers(
    list_type="map", list_map_keys=_BY_NAME, max_items=128, rules=(FIELD_IMMUTABLE,)
)
_FIXED_LIST: Final = Markers(list_type="map", list_map_keys=_BY_NAME, max_items=64, rules=(FIELD_IMMUTABLE,))


class ContainerPatch(Struct):
    """Changes to one container of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the container. The runtime must have a container of this name."""
    env: Annotated[list[EnvVar] | None, _ITEMS] = None
    """Environment variables. A variable replaces the runtime's variable of the same name.

    They cannot be set for the containers node, dataset-initializer and model-initializer: set the variables of these
    containers in spec.trainer and spec.initializer.
    """
    volume_mounts: Annotated[list[VolumeMount] | None, _ITEMS] = None
    """Volume mounts of the container, merged by mount path with the runtime's volume mounts."""
    security_context: SecurityContext | None = None
    """Security options of the container. They are merged into the runtime's security options.

    The operator of the manager can forbid them: runtimePatches.securityContext in its Configuration.
    """


class PodSpecPatch(Struct):
    """Changes to the spec of a pod template."""

    service_account_name: Annotated[str | None, Markers(max_length=253, rules=(FIELD_IMMUTABLE,))] = None
    """Service account of the pods. An empty value removes the runtime's service account.

    The name cannot be changed once it is set.
    """
    volumes: Annotated[list[Volume] | None, _FIXED_VOLUMES] = None
    """Volumes of the pods, merged by name with the runtime's volumes. They cannot be changed once they are set."""
    init_containers: Annotated[list[ContainerPatch] | None, _FIXED_LIST] = None
    """Changes to init containers of the runtime. They cannot be changed once they are set."""
    containers: Annotated[list[ContainerPatch] | None, _FIXED_LIST] = None
    """Changes to containers of the runtime. They cannot be changed once they are set."""
    image_pull_secrets: Annotated[list[LocalObjectReference] | None, _FIXED_LIST] = None
    """Secrets for pulling the pods' images, merged by name with the runtime's secrets.

    They cannot be changed once they are set.
    """
    security_context: Annotated[PodSecurityContext | None, Markers(rules=(FIELD_IMMUTABLE,))] = None
    """Security options of the pods, merged into the runtime's security options.

    They cannot be changed once they are set. The operator of the manager can forbid them:
    runtimePatches.securityContext in its Configuration.
    """
    node_selector: dict[str, str] | None = None
    """Labels that a node must have to run the pods. A label replaces the runtime's label with the same key."""
    affinity: Affinity | None = None
    """Affinity and anti-affinity of the pods. They are merged into the runtime's affinity."""
    tolerations: Annotated[list[Toleration] | None, Markers(list_type="atomic", max_items=128)] = None
    """Tolerations of the pods. They replace all tolerations of the runtime."""
    scheduling_gates: Annotated[
        list[PodSchedulingGate] | None, Markers(list_type="map", list_map_keys=_BY_NAME, max_items=16)
    ] = None
    """Gates that must be removed before the pods are scheduled, merged by name with the runtime's gates."""
    termination_grace_period_seconds: Annotated[
        Int64 | None, Markers(minimum=0, rules=(FIELD_IMMUTABLE,))
    ] = None
    """Time, in seconds, that the pods have to terminate gracefully. It cannot be changed once it is set."""
    go_pointers: ClassVar[frozenset[str]] = frozenset(
        {"service_account_name", "termination_grace_period_seconds"}
    )


class PodTemplatePatch(Struct):
    """Changes to a pod template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations. They replace the pod template's labels and annotations with the same keys."""
    spec: PodSpecPatch | None = None
    """Changes to the pod template's spec. They are applied as a strategic merge patch."""


class JobSpecPatch(Struct):
    """Changes to the spec of a job template."""

    template: PodTemplatePatch | None = None
    """Changes to the job's pod template."""


class JobTemplatePatch(Struct):
    """Changes to a job template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations. They replace the job template's labels and annotations with the same keys."""
    spec: JobSpecPatch | None = None
    """Changes to the job template's spec."""


class ReplicatedJobPatch(Struct):
    """Changes to one replicated job of the runtime's template."""

    name: Annotated[str, _NAMED] = ""
    """Name of the replicated job. The runtime must have a replicated job of this name."""
    template: JobTemplatePatch | None = None
    """Changes to the replicated job's template."""


class JobSetSpecPatch(Struct):
    """Changes to the spec of the JobSet template."""

    replicated_jobs: Annotated[
        list[ReplicatedJobPatch] | None, Markers(list_type="map", list_map_keys=_BY_NAME, max_items=100)
    ] = None
    """Changes to replicated jobs of the runtime's JobSet template, by their names."""


class JobSetTemplatePatch(Struct):
    """Changes to the JobSet template."""

    metadata: ObjectMeta | None = None
    """Labels and annotations of the JobSet. They replace values of the runtime and the TrainJob with the same keys."""
    spec: JobSetSpecPatch | None = None
    """Changes to the spec of the JobSet template."""


class TrainingRuntimeSpecPatch(Struct):
    """Changes to the spec of a training runtime."""

    template: JobSetTemplatePatch | None = None
    """Changes to the JobSet template."""


class RuntimePatch(Struct):
    """Changes to the training runtime of a TrainJob by one manager: a client of a user, or a controller."""

    manager: Annotated[
        str, Markers(min_length=1, max_length=253, rules=(FIELD_IMMUTABLE,), required=True)
    ] = ""
    """The client or controller that sets this patch, as a domain-prefixed path such as example.com/tool.

    Each manager has at most one patch.
    """
    time: Annotated[str | None, Markers(format="date-time")] = None
    """Time at which the patch was last changed. The admission webhook sets it."""
    training_runtime_spec: TrainingRuntimeSpecPatch | None = None
    """Changes to the spec of the training runtime."""
