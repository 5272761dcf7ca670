# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Coscheduling's PodGroup."""

from typing import ClassVar, Final

from controller_runtime.machinery import Object, Struct
from controller_runtime.machinery.quantity import ResourceList
from pydantic import Field

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"


class PodGroupSpec(Struct):
    """schedulerpluginsv1alpha1.PodGroupSpec."""

    min_member: int | None = None
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(Struct):
    """schedulerpluginsv1alpha1.PodGroupStatus."""

    phase: str | None = None
    occupied_by: str | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    schedule_start_time: str | None = None


class PodGroup(Object, group="scheduling.x-k8s.io", version="v1alpha1", kind="PodGroup", plural="podgroups"):
    """schedulerpluginsv1alpha1.PodGroup."""

    applies_defaults: ClassVar[bool] = True

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)
