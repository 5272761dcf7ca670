# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods without an owner. Each has a group of its own, except Spark's: labels name the application, and the driver and
executors of an application form one group.
"""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.podgroup import Metadata

from .defaultgrouper import DefaultGrouper
from .delegating import DelegatingGrouper
from .grouper import Reads, fitting

APP_NAME_LABEL: Final = "spark-app-name"
APP_SELECTOR_LABEL: Final = "spark-app-selector"


def is_spark_pod(pod: Pod) -> bool:
    """Return True if the pod has both of Spark's labels."""
    return APP_NAME_LABEL in pod.labels and APP_SELECTOR_LABEL in pod.labels


# +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
class PodJobGrouper(DelegatingGrouper):
    """Groups a pod that is its own top owner."""

    name = DefaultGrouper.name
    reads = Reads.METADATA

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Name the group of a Spark pod after the application."""
        if is_spark_pod(pod):
            metadata.name = fitting(pod.labels[APP_SELECTOR_LABEL])
