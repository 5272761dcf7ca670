# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""RayJobs: a group with the size of the cluster that is created for the job."""

from __future__ import annotations

from pkg.podgrouper.plugins.grouper import Reads

from .ray_grouper import RayGrouper


class RayJobGrouper(RayGrouper):
    """Groups a RayJob. The operator writes the cluster's name into the RayJob's status."""

    reads = Reads.OBJECT
    cluster_name_paths = (("status", "rayClusterName"),)
