# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RayClusters."""

from __future__ import annotations

from pkg.podgrouper.plugins.grouper import Reads

from .ray_grouper import RayGrouper


class RayClusterGrouper(RayGrouper):
    """Groups a RayCluster that has no owner."""

    reads = Reads.SPEC
