# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""JAXJobs: the group requires all workers at once. A JAXJob has no master."""

from __future__ import annotations

from .distributed_common import KubeflowDistributedGrouper


class JaxGrouper(KubeflowDistributedGrouper):
    """Groups a JAXJob."""

    name = "JAX Grouper"
    replica_specs = "jaxReplicaSpecs"
    mandatory_roles = ("Worker",)
