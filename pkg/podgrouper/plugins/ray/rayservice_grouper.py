# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RayServices: a group with the size of the active cluster, or of the pending one if none is active."""

from __future__ import annotations

from pkg.podgrouper.plugins.grouper import Reads

from .ray_grouper import RayGrouper


class RayServiceGrouper(RayGrouper):
    """Groups a RayService. The operator writes the clusters' names into the RayService's status."""

    reads = Reads.OBJECT
    cluster_name_paths = (
        ("status", "activeServiceStatus", "rayClusterName"),
        ("status", "pendingServiceStatus", "rayClusterName"),
    )
