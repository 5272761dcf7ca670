# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The groupers of training operators' jobs: the group requires the replicas of all roles at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.plugins import fields, schedulers
from pkg.podgrouper.plugins.delegating import DelegatingGrouper
from pkg.podgrouper.plugins.errors import AccessorError, GroupingError
from pkg.podgrouper.plugins.grouper import Reads
from pkg.podgrouper.podgroup import Metadata


# +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;notebooks;pytorchjobs;jaxjobs;paddlejobs;tfjobs;xgboostjobs;scheduledworkflows,verbs=get;list;watch
class KubeflowDistributedGrouper(DelegatingGrouper):
    """Groups a job by its replica specs. A subclass sets the name of their field and the mandatory roles."""

    name = "Kubeflow Distributed Grouper"
    reads = Reads.SPEC
    replica_specs: ClassVar[str]
    """The field below ``spec`` that holds the replica specs by role."""
    mandatory_roles: ClassVar[tuple[str, ...]] = ()
    default_replicas: ClassVar[Mapping[str, int]] = {}
    """The replicas that the operator assumes for a role if the spec sets none; 1 for roles that are not listed."""

    async def adjust(self, metadata: Metadata, owner: Unstructured, pod: Pod) -> None:
        """Require the scheduling policy's minimum, else the elastic policy's minimum, else all replicas.

        The policies cannot require more pods than the job has. Roles that another scheduler binds are not counted.

        Raises:
            GroupingError: a role is missing, the job has no replicas, or the spec is malformed.
        """
        policy = fields.nested_int64(owner, "spec", "runPolicy", "schedulingPolicy", "minAvailable")
        elsewhere: set[str] = set()
        try:
            specs = fields.nested_map(owner, "spec", self.replica_specs) or {}
            elsewhere = schedulers.bound_elsewhere(pod, specs, "template")
            replicas = self._replicas(owner, elsewhere)
        except GroupingError:
            if policy is None:
                raise
            replicas = policy
        try:
            elastic = fields.nested_int64(owner, "spec", "elasticPolicy", "minReplicas")
        except AccessorError:
            elastic = None
        minimum = elastic if policy is None else policy
        metadata.min_available = fields.int32(replicas if minimum is None else min(minimum, replicas))
        await self.refine(metadata, owner, pod, elsewhere)

    async def refine(self, metadata: Metadata, owner: Unstructured, pod: Pod, elsewhere: set[str]) -> None:
        """Change what depends on roles; another scheduler binds those in ``elsewhere``. Raises like :meth:`adjust`."""

    def _replicas(self, job: Unstructured, elsewhere: set[str]) -> int:
        what = f"the type of the job {job.name} doesn't"
        specs = fields.nested_map(job, "spec", self.replica_specs)
        if specs is None:
            raise GroupingError(f"{what} have a {self.replica_specs} field. Please fix the replica field")
        for role in self.mandatory_roles:
            if role not in specs:
                raise GroupingError(
                    f"{what} have a {role} replica spec which is required. Please fix the replica field"
                )
        replicas = {role: self.replicas_of(job, role) for role in specs}
        total = sum(replicas.values())
        if total <= 0:
            for role, number in replicas.items():
                if not number:
                    raise GroupingError(f"{what} allow for 0 {role} pods. Please fix the replica field")
            raise GroupingError(
                f"failed calculate number of pods for a distributed job {job.name}."
                f" Must be greater than 0, but got {total}"
            )
        return max(1, total - sum(max(0, replicas[role]) for role in elsewhere))

    def replicas_of(self, job: Unstructured, role: str) -> int:
        """Return how many pods the operator creates for a role that the job has. It may be 0."""
        replicas = fields.nested_int64(job, "spec", self.replica_specs, role, "replicas")
        return self.default_replicas.get(role, 1) if replicas is None else replicas


class JaxGrouper(KubeflowDistributedGrouper):
    """Groups a JAXJob: workers, all at once, without a master."""

    name = "JAX Grouper"
    replica_specs = "jaxReplicaSpecs"
    mandatory_roles = ("Worker",)


class PaddleGrouper(KubeflowDistributedGrouper):
    """Groups a PaddleJob: all replicas at once, or as many as the elastic policy requires."""

    name = "Paddle Grouper"
    replica_specs = "paddleReplicaSpecs"


class TensorFlowGrouper(KubeflowDistributedGrouper):
    """Groups a TFJob: all replicas at once, with any roles."""

    name = "TensorFlow Grouper"
    replica_specs = "tfReplicaSpecs"


class XGBoostGrouper(KubeflowDistributedGrouper):
    """Groups an XGBoostJob: a master and, if there are any, workers, all at once."""

    name = "XGBoost Grouper"
    replica_specs = "xgbReplicaSpecs"
    mandatory_roles = ("Master",)
