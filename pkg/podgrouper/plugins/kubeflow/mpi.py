# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""MPIJobs: the group requires launcher and workers at once. While the launcher waits, it requires only the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.plugins import fields
from pkg.podgrouper.plugins.delegating import not_ended
from pkg.podgrouper.plugins.errors import AccessorError, GroupingError
from pkg.podgrouper.podgroup import Metadata

from .distributed_common import KubeflowDistributedGrouper

WAIT_FOR_WORKERS_READY: Final = "WaitForWorkersReady"
JOB_NAME_LABEL: Final = "training.kubeflow.org/job-name"
JOB_ROLE_LABEL: Final = "training.kubeflow.org/job-role"

_LAUNCHER: Final = "Launcher"


class MpiGrouper(KubeflowDistributedGrouper):
    """Groups an MPIJob."""

    name = "MPI Grouper"
    replica_specs = "mpiReplicaSpecs"
    mandatory_roles = (_LAUNCHER,)
    default_replicas: ClassVar[Mapping[str, int]] = {"Worker": 0}

    async def refine(self, metadata: Metadata, owner: Unstructured, _pod: Pod, elsewhere: set[str]) -> None:
        """Require launcher and workers.

        If the launcher is created after the workers and does not exist yet, require only the workers.

        Raises:
            GroupingError: the launcher is missing, or the spec is malformed.
            StatusError: the job's pods cannot be listed.
        """
        policy = fields.nested_string(owner, "spec", "launcherCreationPolicy")
        if policy == WAIT_FOR_WORKERS_READY and not await self._has_launcher(owner):
            try:
                launchers = self.replicas_of(owner, _LAUNCHER)
            except AccessorError as error:  # with minAvailable set, the field was not validated before
                raise GroupingError(
                    f"the type of the job {owner.name} doesn't allow for 0 mpiReplicaSpecs pods."
                    " Please fix the replica field"
                ) from error
            if _LAUNCHER not in elsewhere:  # otherwise it is not counted
                metadata.min_available = fields.int32(metadata.min_available - max(0, launchers))

    async def _has_launcher(self, job: Unstructured) -> bool:
        """Return True if a launcher pod exists that has not ended and is not being deleted."""
        pods = await self._client.list(
            Pod, namespace=job.namespace, labels={JOB_NAME_LABEL: job.name, JOB_ROLE_LABEL: "launcher"}
        )
        return any(pod.metadata.deletion_timestamp is None for pod in not_ended(pods))
