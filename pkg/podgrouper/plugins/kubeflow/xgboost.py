# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""XGBoostJobs: the group requires the master and all workers at once."""

from __future__ import annotations

from .distributed_common import KubeflowDistributedGrouper


class XGBoostGrouper(KubeflowDistributedGrouper):
    """Groups an XGBoostJob."""

    name = "XGBoost Grouper"
    replica_specs = "xgbReplicaSpecs"
    mandatory_roles = ("Master", "Worker")
