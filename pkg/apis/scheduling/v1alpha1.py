# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes 1.35: a Workload has the pod groups, and pods name both (``spec.workloadRef``)."""

from typing import ClassVar

from controller_runtime.machinery import Object, Struct
from pydantic import Field

from .common import PodGroupSchedulingPolicy


class TypedLocalObjectReference(Struct):
    """schedulingv1alpha1.TypedLocalObjectReference."""

    api_group: str | None = None
    kind: str | None = None
    name: str | None = None


class PodGroup(Struct):
    """schedulingv1alpha1.PodGroup, a part of a Workload."""

    name: str | None = None
    policy: PodGroupSchedulingPolicy | None = None


class WorkloadSpec(Struct):
    """schedulingv1alpha1.WorkloadSpec. The pod groups are immutable."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_groups: list[PodGroup] | None = None


class Workload(Object, group="scheduling.k8s.io", version="v1alpha1", kind="Workload", plural="workloads"):
    """schedulingv1alpha1.Workload."""

    applies_defaults: ClassVar[bool] = True

    spec: WorkloadSpec = Field(default_factory=WorkloadSpec)
