# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods without an owner: Spark's pods are grouped by application, and every other pod has a group of its own."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Object, Unstructured

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .grouper import Grouper, Reads
from .spark import SparkGrouper, is_spark_pod


# +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
class PodJobGrouper(Grouper):
    """Groups a pod that is its own top owner."""

    name = DefaultGrouper.name
    reads = Reads.METADATA

    def __init__(self, default: DefaultGrouper) -> None:
        self._default = default
        self._spark = SparkGrouper(default)

    async def get_pod_group_metadata(
        self, top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the Spark application's group, or the default one."""
        grouper = self._spark if is_spark_pod(pod) else self._default
        return await grouper.get_pod_group_metadata(top_owner, pod)
