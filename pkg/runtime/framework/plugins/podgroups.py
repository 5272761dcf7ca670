# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shared part of the gang-scheduling plugins: the size of the gang, and when its PodGroup may be written."""

from __future__ import annotations

from controller_runtime.apis.machinery import quantity
from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.machinery.quantity import ResourceList
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Reader

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime.runtime import Info
from pkg.util import trainjob


def total_members(info: Info) -> int:
    """Return the number of pods in all pod sets."""
    return sum(pod_set.count for pod_set in info.template_spec.pod_sets)


def total_requests(info: Info) -> ResourceList:
    """Return the sum of all pods' requests in the template. The trainer's resources are ignored."""
    total: ResourceList = {}
    for pod_set in info.template_spec.pod_sets:
        for name, amount in pod_set.single_pod_requests.items():
            total[name] = quantity.add(total.get(name, "0"), quantity.mul(amount, pod_set.count))
    return total


async def may_be_written(client: Reader, kind: type[Object], train_job: TrainJob) -> bool:
    """Return True if the TrainJob's PodGroup may be written: while it is suspended, or to create it.

    Raises:
        StatusError: reading the PodGroup failed for a reason other than its absence.
        CacheDegradedError: the server does not serve PodGroups, or denies access.
    """
    try:
        await client.get(kind, train_job.key)
    except NotFoundError:
        return True
    return bool(train_job.spec.suspend)


def metadata_for(train_job: TrainJob) -> ObjectMeta:
    """Return the metadata of a PodGroup with the TrainJob's name and as its controller."""
    return ObjectMeta(
        name=train_job.name,
        namespace=train_job.namespace,
        owner_references=[trainjob.controller_reference(train_job)],
    )
