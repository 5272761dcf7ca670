# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CoScheduling: gang-scheduling by the coscheduling plugin of the Kubernetes scheduler plugins."""

from __future__ import annotations

from pkg.apis.schedulerplugins.v1alpha1 import POD_GROUP_LABEL, PodGroup, PodGroupSpec
from pkg.apis.trainer.v1alpha1 import CoschedulingPodGroupPolicySource, PodGroupPolicy, TrainJob
from pkg.runtime.runtime import Info
from pkg.util import trainjob

from . import podgroups
from .podgroups import PodGroupPlugin


# +kubebuilder:rbac:groups=scheduling.x-k8s.io,resources=podgroups,verbs=create;get;list;watch;update;patch
# +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch
# +kubebuilder:rbac:groups="",resources=limitranges,verbs=get;list;watch
class CoScheduling(PodGroupPlugin[CoschedulingPodGroupPolicySource]):
    """Serves runtimes whose podGroupPolicy is ``coscheduling``."""

    name = "CoScheduling"
    serves = "podGroupPolicy.coscheduling"
    kind = PodGroup

    @staticmethod
    def source(policy: PodGroupPolicy) -> CoschedulingPodGroupPolicySource | None:
        """Return the policy's field ``coscheduling``."""
        return policy.coscheduling

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Label the gang's pods as members of the TrainJob's PodGroup."""
        if self.policy(info) is not None:
            info.scheduler.pod_labels[POD_GROUP_LABEL] = train_job.name

    def pod_group(
        self, info: Info, train_job: TrainJob, policy: CoschedulingPodGroupPolicySource
    ) -> PodGroup:
        """Return the PodGroup of the TrainJob's pods."""
        spec = PodGroupSpec(
            min_member=podgroups.total_members(info),
            min_resources=podgroups.total_requests(info),
            schedule_timeout_seconds=policy.schedule_timeout_seconds,
        )
        return PodGroup(metadata=trainjob.child_metadata(train_job), spec=spec)
