# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The shared part of the gang-scheduling plugins: the size of the gang, and when its PodGroup may be written.

A plugin whose gangs are PodGroups of one kind inherits :class:`PodGroupPlugin`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import anyio
from controller_runtime.client import Reader
from controller_runtime.machinery import Object, quantity
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.machinery.quantity import ResourceList

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import PodGroupPolicy, TrainJob
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    EnforcePodGroupPolicyPlugin,
    WatchExtensionPlugin,
)
from pkg.runtime.interface import ReconcilerBuilder
from pkg.runtime.runtime import Info, PodSet, template_spec_apply

from . import members

P = TypeVar("P")
"""The type of the plugin's field in a podGroupPolicy."""


class PodGroupPlugin(EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin, WatchExtensionPlugin, Generic[P]):
    """Builds one PodGroup of ``kind`` for each TrainJob whose runtime has the policy."""

    kind: ClassVar[type[Object]]

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._needed = anyio.Event()

    @staticmethod
    @abstractmethod
    def source(policy: PodGroupPolicy) -> P | None:
        """Return the plugin's field of the policy, or None."""

    @abstractmethod
    def pod_group(self, info: Info, train_job: TrainJob, policy: P) -> Object:
        """Return the PodGroup of the TrainJob's pods."""

    def policy(self, info: Info) -> P | None:
        """Return the plugin's field of the runtime's policy, or None."""
        found = info.runtime_policy.pod_group_policy
        return None if found is None else self.source(found)

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the PodGroup of the TrainJob's pods.

        If the runtime does not have the policy, nothing is returned. If the PodGroup of a running job exists, nothing
        is returned either: a PodGroup is rewritten only while its job is suspended.

        Raises:
            StatusError: the PodGroup could not be read. A missing PodGroup is not an error.
            CacheDegradedError: the server does not serve these PodGroups, or does not permit reading them.
        """
        policy = self.policy(info)
        if policy is None:
            return []
        self._needed.set()
        if not await may_be_written(self._client, self.kind, train_job):
            return []
        return [self.pod_group(info, train_job, policy)]

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the TrainJobs' PodGroups, LimitRanges and RuntimeClasses.

        Also watch whether the server begins to serve PodGroups.
        """
        from . import podgroup_watches  # rendering without a cluster loads no controllers

        return podgroup_watches.watches(
            self.kind, self._needed.wait, lambda policy: self.source(policy) is not None
        )


def starting_together(info: Info) -> list[PodSet]:
    """Return the pod sets whose pods exist at the same time before any of them is ready.

    A gang that waited for other pods would never start: JobSet creates some jobs only after others are ready or
    complete.
    """
    spec = template_spec_apply(info, JobSetSpec)
    if spec is None:
        return info.template_spec.pod_sets
    gang = members.members(spec, info.template_spec.pod_sets, initializers_may_be=True)
    return [member.pod_set for member in gang if not member.starts_later]


def total_members(info: Info) -> int:
    """Return the number of pods that start together."""
    return sum(pod_set.count for pod_set in starting_together(info))


def total_requests(info: Info) -> ResourceList:
    """Return the sum of the requests of all pods that start together.

    The TrainJob's resources are included only if they were merged into the template's resources (v2.3).
    """
    total: ResourceList = {}
    for pod_set in starting_together(info):
        for name, amount in pod_set.single_pod_requests.items():
            total[name] = quantity.add(total.get(name, "0"), quantity.mul(amount, pod_set.count))
    return total


async def may_be_written(client: Reader, kind: type[Object], train_job: TrainJob) -> bool:
    """Return True if the TrainJob's PodGroup may be written: if it does not exist, or if the TrainJob is suspended.

    Raises:
        StatusError: the PodGroup could not be read. A missing PodGroup is not an error.
        CacheDegradedError: the server does not serve PodGroups, or does not permit reading them.
    """
    try:
        await client.get(kind, train_job.key)
    except NotFoundError:
        return True
    return bool(train_job.spec.suspend)
