# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RunaiJobs: one group for each replica. The name of the group is made from the pod's name without its last part."""

from __future__ import annotations

from controller_runtime.apis.core.v1 import Pod

from .defaultgrouper import DefaultGrouper
from .job import K8sJobGrouper


# +kubebuilder:rbac:groups=run.ai,resources=runaijobs,verbs=get;list;watch
class RunaiJobGrouper(K8sJobGrouper):
    """Groups the pods of a RunaiJob by replica. When a pod is recreated, only the last part of its name changes."""

    name = DefaultGrouper.name

    def _base_name(self, pod: Pod) -> str:
        replica, dash, _ = pod.name.rpartition("-")
        return replica if dash else pod.name
