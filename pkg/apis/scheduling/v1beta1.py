# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes 1.37: a PodGroup is an object of its own, which pods name (``spec.schedulingGroup``)."""

from typing import ClassVar, Final

from controller_runtime.machinery import Object, Struct
from pydantic import Field

from .common import PodGroupSchedulingPolicy, PodGroupStatus

SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition in which the scheduler reports whether the group was scheduled."""


class PodGroupSpec(Struct):
    """schedulingv1beta1.PodGroupSpec. Only the gang's minCount may change."""

    scheduling_policy: PodGroupSchedulingPolicy | None = None
    priority_class_name: str | None = None


class PodGroup(Object, group="scheduling.k8s.io", version="v1beta1", kind="PodGroup", plural="podgroups"):
    """schedulingv1beta1.PodGroup."""

    applies_defaults: ClassVar[bool] = True

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)
