# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volcano: gang-scheduling by Volcano with queue, priority and network topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.machinery import NamespacedName, field
from controller_runtime.machinery.errors import StatusError
from controller_runtime.machinery.gojson import quote
from controller_runtime.rest import RestError

from pkg.apis.trainer.v1alpha1 import PodGroupPolicy, TrainJob, VolcanoPodGroupPolicySource
from pkg.apis.volcano.v1beta1 import (
    KUBE_GROUP_NAME_ANNOTATION_KEY,
    QUEUE_NAME_ANNOTATION_KEY,
    NetworkTopologySpec,
    PodGroup,
    PodGroupSpec,
)
from pkg.runtime.framework.interface import CustomValidationPlugin
from pkg.runtime.runtime import Info
from pkg.util import trainjob

from . import podgroups
from .podgroups import PodGroupPlugin

_BUILT_IN: Final = ("system-cluster-critical", "system-node-critical")
_QUEUE: Final = field.Path("spec").child("annotations").key(QUEUE_NAME_ANNOTATION_KEY)
_PRIORITY_CLASS: Final = field.Path("spec").child("templateSpec").child("priorityClassName")


# +kubebuilder:rbac:groups=scheduling.volcano.sh,resources=podgroups,verbs=create;get;list;watch;update;patch
# +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch
# +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get;list;watch
# +kubebuilder:rbac:groups="",resources=limitranges,verbs=get;list;watch
class Volcano(PodGroupPlugin[VolcanoPodGroupPolicySource], CustomValidationPlugin):
    """Serves runtimes whose podGroupPolicy is ``volcano``."""

    name = "Volcano"
    serves = "podGroupPolicy.volcano"
    kind = PodGroup

    @staticmethod
    def source(policy: PodGroupPolicy) -> VolcanoPodGroupPolicySource | None:
        """Return the policy's field ``volcano``."""
        return policy.volcano

    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check that the queue has a name, and that the pods' PriorityClasses exist.

        As upstream, stop at the first built-in PriorityClass, and do not check the following ones.
        """
        del old, new
        errors = field.ErrorList()
        if self.policy(info) is None:
            return [], errors
        if info.annotations.get(QUEUE_NAME_ANNOTATION_KEY) == "":
            errors.append(field.invalid(_QUEUE, "", "Volcano queue name must not be empty"))
        reasons: dict[str, Exception | None] = {}
        for name in _priority_classes(info):
            if name in _BUILT_IN:
                break
            if name not in reasons:
                reasons[name] = await self._why_missing(name)
            if (why := reasons[name]) is not None:
                detail = f"PriorityClass {quote(name)} doesn't exist: {why}"
                errors.append(field.invalid(_PRIORITY_CLASS, name, detail))
        return [], errors

    async def _why_missing(self, priority_class: str) -> Exception | None:
        from controller_runtime.cache import CacheError  # rendering without a cluster loads no cache

        try:
            await self._client.get(PriorityClass, NamespacedName("", priority_class))
        except (StatusError, RestError, CacheError) as error:
            return error
        return None

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Annotate the gang's pods as members of the TrainJob's PodGroup."""
        if self.policy(info) is not None:
            info.scheduler.pod_annotations[KUBE_GROUP_NAME_ANNOTATION_KEY] = train_job.name

    def pod_group(self, info: Info, train_job: TrainJob, policy: VolcanoPodGroupPolicySource) -> PodGroup:
        """Return the PodGroup of the TrainJob's pods. An annotation of TrainJob or runtime sets the queue."""
        spec = PodGroupSpec(
            min_member=podgroups.total_members(info),
            min_resources=podgroups.total_requests(info),
            queue=info.annotations.get(QUEUE_NAME_ANNOTATION_KEY),
        )
        for name in _priority_classes(info):  # the group has the PriorityClass of the last job that names one
            spec.priority_class_name = name
        if (topology := policy.network_topology) is not None:
            spec.network_topology = NetworkTopologySpec(
                mode=topology.mode, highest_tier_allowed=topology.highest_tier_allowed
            )
        return PodGroup(metadata=trainjob.child_metadata(train_job), spec=spec)


def _priority_classes(info: Info) -> Iterator[str]:
    """Yield the PriorityClasses that the template's jobs name, in the jobs' order."""
    for job in info.replicated_jobs:
        name = job.template.spec.template.spec.priority_class_name
        if name is not None:
            yield name
