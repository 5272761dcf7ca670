# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CronJobs: one group for each run. It is the default group of the run's Job."""

from __future__ import annotations

from typing import Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, Object, Unstructured, unstructured

from pkg.podgrouper.podgroup import Metadata

from .delegating import ReadingGrouper
from .errors import GroupingError
from .grouper import Reads

_JOB: Final = unstructured(GVK("batch", "v1", "Job"))


# +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch
class CronJobGrouper(ReadingGrouper):
    """Groups the pods of one run of a CronJob."""

    name = "CronJob Grouper"
    reads = Reads.METADATA

    async def get_pod_group_metadata(
        self, _top_owner: Unstructured, pod: Pod, *_other_owners: Object
    ) -> Metadata:
        """Return the default group of the Job that owns the pod.

        Raises:
            GroupingError: no Job is among the pod's owners.
            StatusError: the Job cannot be read.
        """
        owners = pod.metadata.owner_references or ()
        name = next((owner.name for owner in owners if owner.kind == "Job"), None)
        if name is None:
            raise GroupingError("no owner reference of type 'Job'")
        job = await self._client.get(_JOB, (pod.namespace, name))
        return await self._default.get_pod_group_metadata(job, pod)
