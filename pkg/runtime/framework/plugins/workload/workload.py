# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Workload: the plugin for runtimes whose podGroupPolicy is ``workload``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from controller_runtime.client import Reader, peek
from controller_runtime.machinery import Object, conditions, field
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.quantity import MAX_INT32
from controller_runtime.rest import RestError

from pkg.apis.jobset.v1alpha2 import JobSet, JobSetSpec
from pkg.apis.scheduling import v1alpha2, v1beta1
from pkg.apis.trainer.v1alpha1 import PodGroupPolicy, TrainJob
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforcePodGroupPolicyPlugin,
    PluginError,
    UnavailableError,
    WatchExtensionPlugin,
)
from pkg.runtime.framework.plugins import members, podgroups
from pkg.runtime.interface import ReconcilerBuilder, Waiting
from pkg.runtime.runtime import Info, template_spec_apply

from .served import KINDS, Served, Support, join, new_gang

_PATH: Final = field.Path("spec", "runtimeRef")


# +kubebuilder:rbac:groups=scheduling.k8s.io,resources=podgroups;workloads,verbs=create;delete;get;list;watch;patch
class Workload(
    EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin, CustomValidationPlugin, WatchExtensionPlugin
):
    """Puts the pods of a TrainJob into one gang, except pods that end before other pods start (see :mod:`.members`)."""

    name = "Workload"
    serves = "podGroupPolicy.workload"

    def __init__(self, client: Reader, served: Served) -> None:
        self._client = client
        self._served = served
        self._needed = anyio.Event()
        self._written = {version: anyio.Event() for version in KINDS}

    async def prepare(self, pod_group_policy: PodGroupPolicy) -> None:
        """Read which version of the gang API is served."""
        if pod_group_policy.workload is not None:
            self._needed.set()
            await self._served.current()

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        """Write the gang's name into its members' pods, in the field of the version that is served."""
        support = self._served.last
        if not _is_wanted(info) or support is None or not support.version:
            return
        info.scheduler.gang_version = support.version
        for member in _members(info):
            join(member.job.template.spec.template.spec, support.version, train_job.name)

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the gang of the TrainJob's pods.

        If the runtime has no workload policy, nothing is returned. If the gang of a running job exists, nothing is
        returned either: a gang is rewritten only while its job is suspended.

        Raises:
            UnavailableError: the cluster cannot schedule gangs.
            PluginError: the pods of this runtime cannot be one gang.
            StatusError: the gang could not be read. A missing gang is not an error.
        """
        if not _is_wanted(info):
            return []
        version = info.scheduler.gang_version
        if not version:
            if not train_job.spec.suspend and await self._runs(train_job):
                return []
            support = self._served.last or Support()
            raise UnavailableError(support.reason, support.message)
        found = _members(info)
        if (problem := _problem(info, found)) is not None:
            raise PluginError(problem)
        self._written[version].set()
        if not await podgroups.may_be_written(self._client, KINDS[version], train_job):
            return []
        return [new_gang(version, train_job, members.min_count(found), members.priority_class(found))]

    async def validate(
        self, info: Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Refuse a runtime whose pods cannot be one gang, and warn if the cluster cannot schedule gangs."""
        del old
        if not _is_wanted(info):
            return [], field.ErrorList()
        if (problem := _problem(info, _members(info))) is not None:
            return [], field.ErrorList([field.invalid(_PATH, new.spec.runtime_ref, problem)])
        try:
            support = await self._served.current()
        except (StatusError, RestError):
            return [], field.ErrorList()
        return [support.message] if support.message else [], field.ErrorList()

    async def why_waiting(self, train_job: TrainJob) -> Waiting | None:
        """Return the condition that reports why the scheduler has not scheduled the gang.

        Workloads (v1alpha1) have no such condition.
        """
        if self._written["v1beta1"].is_set():
            return await self._condition(v1beta1.PodGroup, v1beta1.SCHEDULED, train_job)
        if self._written["v1alpha2"].is_set():
            return await self._condition(v1alpha2.PodGroup, v1alpha2.SCHEDULED, train_job)
        return None

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the TrainJobs' gangs, and watch which version of the gang API is served."""
        from pkg.runtime.framework.plugins import podgroup_watches  # rendering loads no controllers

        found = [podgroup_watches.owned(kind, self._written[version].wait) for version, kind in KINDS.items()]
        return [*found, podgroup_watches.served_versions(self._served, self._needed.wait)]

    async def _runs(self, train_job: TrainJob) -> bool:
        try:
            return not (await peek(self._client, JobSet, train_job.key)).object.spec.suspend
        except NotFoundError:
            return False

    async def _condition(
        self, kind: type[v1alpha2.PodGroup | v1beta1.PodGroup], wanted: str, train_job: TrainJob
    ) -> Waiting | None:
        from controller_runtime.cache import CacheError  # rendering without a cluster loads no cache

        try:
            group = (await peek(self._client, kind, train_job.key)).object
        except (StatusError, RestError, CacheError):
            return None
        found = conditions.find(group.status.conditions or [], wanted)
        if found is None or found.status != "False":
            return None
        return Waiting(found.reason or "", found.message or "")


def _is_wanted(info: Info) -> bool:
    policy = info.runtime_policy.pod_group_policy
    return policy is not None and policy.workload is not None


def _members(info: Info) -> list[members.Member]:
    spec = template_spec_apply(info, JobSetSpec)
    return [] if spec is None else members.members(spec, info.template_spec.pod_sets)


def _problem(info: Info, found: Sequence[members.Member]) -> str | None:
    """Return why the pods cannot be one gang of Kubernetes' scheduler, or None."""
    policy = info.runtime_policy.pod_group_policy
    others = [
        name
        for name in ("coscheduling", "volcano")
        if policy is not None and getattr(policy, name) is not None
    ]
    if others:
        return f"podGroupPolicy.workload and podGroupPolicy.{others[0]} exclude each other"
    count = members.min_count(found)
    if not 0 < count <= MAX_INT32:
        return f"podGroupPolicy.workload: a gang must have 1 to {MAX_INT32} pods, not {count}"
    return None
