# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds that are read to explain the state of a TrainJob."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import GVK

TRAIN_JOB: Final = "TrainJob.trainer.kubeflow.org"
RUNTIMES: Final = ("TrainingRuntime.trainer.kubeflow.org", "ClusterTrainingRuntime.trainer.kubeflow.org")
JOB_SET: Final = "JobSet.jobset.x-k8s.io"
JOB: Final = "Job.batch"
POD: Final = "Pod"
EVENT: Final = "Event"
SERVICE: Final = "Service"
NODE: Final = "Node"
QUOTA: Final = "ResourceQuota"
LIMIT_RANGE: Final = "LimitRange"
VALIDATING_WEBHOOK: Final = "ValidatingWebhookConfiguration.admissionregistration.k8s.io"
MUTATING_WEBHOOK: Final = "MutatingWebhookConfiguration.admissionregistration.k8s.io"
CLAIM: Final = "PersistentVolumeClaim"
NAMESPACE: Final = "Namespace"
DEPLOYMENT: Final = "Deployment.apps"
LEASE: Final = "Lease.coordination.k8s.io"
WORKLOAD: Final = "Workload.kueue.x-k8s.io"
LOCAL_QUEUE: Final = "LocalQueue.kueue.x-k8s.io"
CLUSTER_QUEUE: Final = "ClusterQueue.kueue.x-k8s.io"
COSCHEDULING_GROUP: Final = "PodGroup.scheduling.x-k8s.io"
VOLCANO_GROUP: Final = "PodGroup.scheduling.volcano.sh"
KAI_GROUP: Final = "PodGroup.scheduling.run.ai"
NATIVE_GROUP: Final = "PodGroup.scheduling.k8s.io"
NATIVE_WORKLOAD: Final = "Workload.scheduling.k8s.io"
"""Describes a gang in Kubernetes 1.35. Later releases use PodGroups."""
POD_GROUPS: Final = (COSCHEDULING_GROUP, VOLCANO_GROUP, KAI_GROUP, NATIVE_GROUP, NATIVE_WORKLOAD)

LOCAL_CLUSTER: Final = "trainer.kubeflow.org/local-cluster"
"""The annotation of nodes with the name of their local cluster."""

_SERVED: Final = (
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob TrainingRuntime ClusterTrainingRuntime"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("batch", "v1", "Job"),
    ("", "v1", "Pod Event Service Node Namespace Secret ConfigMap ServiceAccount"),
    ("", "v1", "ResourceQuota LimitRange PersistentVolumeClaim"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration MutatingWebhookConfiguration"),
    ("apps", "v1", "Deployment"),
    ("node.k8s.io", "v1", "RuntimeClass"),
    ("resource.k8s.io", "v1 v1beta2 v1beta1", "ResourceClaim ResourceClaimTemplate"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("storage.k8s.io", "v1", "StorageClass"),
    ("kueue.x-k8s.io", "v1beta1 v1beta2", "Workload LocalQueue ClusterQueue"),
    ("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup Queue"),
    ("scheduling.run.ai", "v2alpha2", "PodGroup"),
    ("scheduling.run.ai", "v2", "Queue"),
    ("scheduling.k8s.io", "v1beta1 v1alpha2", "PodGroup"),
    ("scheduling.k8s.io", "v1alpha1", "Workload"),
)
VERSIONS: Final[dict[str, tuple[GVK, ...]]] = {
    f"{kind}.{group}".rstrip("."): tuple(GVK(group, version, kind) for version in versions.split())
    for group, versions, kinds in _SERVED
    for kind in kinds.split()
}
"""The API versions of each kind that we try to read, the preferred version first."""
