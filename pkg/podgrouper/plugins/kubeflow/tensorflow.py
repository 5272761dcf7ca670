# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TFJobs: the group requires the replicas of all roles at once. A TFJob may have any roles."""

from __future__ import annotations

from .distributed_common import KubeflowDistributedGrouper


class TensorFlowGrouper(KubeflowDistributedGrouper):
    """Groups a TFJob."""

    name = "TensorFlow Grouper"
    replica_specs = "tfReplicaSpecs"
