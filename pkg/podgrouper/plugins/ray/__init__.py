# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Ray's clusters, and the jobs and services that create one."""

from .ray_grouper import RayGrouper as RayGrouper
from .raycluster_grouper import RayClusterGrouper as RayClusterGrouper
from .rayjob_grouper import RayJobGrouper as RayJobGrouper
from .rayservice_grouper import RayServiceGrouper as RayServiceGrouper
