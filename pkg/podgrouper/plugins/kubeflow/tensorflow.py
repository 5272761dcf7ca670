# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TFJobs: all replicas at once, with any roles."""

from __future__ import annotations

from .distributed_common import KubeflowDistributedGrouper


class TensorFlowGrouper(KubeflowDistributedGrouper):
    """Groups a TFJob."""

    name = "TensorFlow Grouper"
    replica_specs = "tfReplicaSpecs"
