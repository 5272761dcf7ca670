# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CoScheduling: gang-scheduling by the coscheduling plugin of the Kubernetes scheduler plugins."""

from __future__ import annotations

from typing import Final

import anyio
from controller_runtime.apis.machinery.object import Object
from controller_runtime.client import FieldIndexer, Reader

from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from pkg.apis.trainer.v1alpha1 import CoschedulingPodGroupPolicySource, TrainJob
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    EnforcePodGroupPolicyPlugin,
    WatchExtensionPlugin,
)
from pkg.runtime.interface import ReconcilerBuilder
from pkg.runtime.runtime import Info

from . import podgroups

NAME: Final = "CoScheduling"


# +kubebuilder:rbac:groups=scheduling.x-k8s.io,resources=podgroups,verbs=create;get;list;watch;update;patch
# +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch
# +kubebuilder:rbac:groups="",resources=limitranges,verbs=get;list;watch
async def new(client: Reader, _indexer: FieldIndexer) -> CoScheduling:
    """Return the plugin."""
    return CoScheduling(client)


class CoScheduling(EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin, WatchExtensionPlugin):
    """Serves runtimes whose podGroupPolicy is ``coscheduling``."""

    name = NAME

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._needed = anyio.Event()

    def stands_aside(self, info: Info, train_job: TrainJob) -> str | None:
        """Return a reason if the coscheduling policy is missing."""
        del train_job
        return "the runtime has no podGroupPolicy.coscheduling" if _policy(info) is None else None

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Label every pod as a member of the TrainJob's PodGroup."""
        if _policy(info) is not None:
            info.scheduler.pod_labels[POD_GROUP_LABEL] = train_job.name

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the PodGroup of all the TrainJob's pods.

        Nothing is returned without a coscheduling policy, nor for a running job whose PodGroup exists: a
        PodGroup is rewritten only while its job is suspended.

        Raises:
            StatusError: reading the PodGroup failed for a reason other than its absence.
            CacheDegradedError: the server does not serve these PodGroups, or denies access.
        """
        policy = _policy(info)
        if policy is None:
            return []
        self._needed.set()
        if not await podgroups.may_be_written(self._client, PodGroup, train_job):
            return []
        spec = PodGroupSpec(
            min_member=podgroups.total_members(info),
            min_resources=podgroups.total_requests(info),
            schedule_timeout_seconds=policy.schedule_timeout_seconds,
        )
        return [PodGroup(metadata=podgroups.metadata_for(train_job), spec=spec)]

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the TrainJobs' PodGroups, the appearance of their kind, LimitRanges and RuntimeClasses."""
        from . import podgroup_watches  # rendering without a cluster loads no controllers

        return podgroup_watches.watches(
            PodGroup, self._needed.wait, lambda policy: policy.coscheduling is not None
        )


def _policy(info: Info) -> CoschedulingPodGroupPolicySource | None:
    policy = info.runtime_policy.pod_group_policy
    return policy.coscheduling if policy is not None else None
