# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The kinds that are read to explain the state of a TrainJob."""

from __future__ import annotations

from typing import Final

from controller_runtime.machinery import GVK

TRAIN_JOB: Final = "TrainJob.trainer.kubeflow.org"
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
COSCHEDULING_GROUP: Final = "PodGroup.scheduling.x-k8s.io"
VOLCANO_GROUP: Final = "PodGroup.scheduling.volcano.sh"
KAI_GROUP: Final = "PodGroup.scheduling.run.ai"
NATIVE_GROUP: Final = "PodGroup.scheduling.k8s.io"
NATIVE_WORKLOAD: Final = "Workload.scheduling.k8s.io"
"""Describes a gang in Kubernetes 1.35. Later releases use PodGroups."""
POD_GROUPS: Final = (COSCHEDULING_GROUP, VOLCANO_GROUP, KAI_GROUP, NATIVE_GROUP, NATIVE_WORKLOAD)

VERSIONS: Final[dict[str, tuple[GVK, ...]]] = {
    str(versions[0].group_kind): versions
    for versions in (
        (GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob"),),
        (GVK("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"),),
        (GVK("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime"),),
        (GVK("jobset.x-k8s.io", "v1alpha2", "JobSet"),),
        (GVK("batch", "v1", "Job"),),
        (GVK("", "v1", "Pod"),),
        (GVK("", "v1", "Event"),),
        (GVK("", "v1", "Service"),),
        (GVK("", "v1", "Node"),),
        (GVK("", "v1", "Namespace"),),
        (GVK("", "v1", "Secret"),),
        (GVK("", "v1", "ConfigMap"),),
        (GVK("", "v1", "ServiceAccount"),),
        (GVK("", "v1", "ResourceQuota"),),
        (GVK("", "v1", "LimitRange"),),
        (GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),),
        (GVK("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),),
        (GVK("", "v1", "PersistentVolumeClaim"),),
        (GVK("apps", "v1", "Deployment"),),
        (GVK("node.k8s.io", "v1", "RuntimeClass"),),
        *(
            tuple(GVK("resource.k8s.io", version, kind) for version in ("v1", "v1beta2", "v1beta1"))
            for kind in ("ResourceClaim", "ResourceClaimTemplate")
        ),
        (GVK("storage.k8s.io", "v1", "StorageClass"),),
        (GVK("scheduling.k8s.io", "v1", "PriorityClass"),),
        (GVK("coordination.k8s.io", "v1", "Lease"),),
        (GVK("kueue.x-k8s.io", "v1beta1", "Workload"), GVK("kueue.x-k8s.io", "v1beta2", "Workload")),
        (GVK("kueue.x-k8s.io", "v1beta1", "LocalQueue"), GVK("kueue.x-k8s.io", "v1beta2", "LocalQueue")),
        (GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup"),),
        (GVK("scheduling.volcano.sh", "v1beta1", "PodGroup"),),
        (GVK("scheduling.volcano.sh", "v1beta1", "Queue"),),
        (GVK("scheduling.run.ai", "v2alpha2", "PodGroup"),),
        (GVK("scheduling.k8s.io", "v1beta1", "PodGroup"), GVK("scheduling.k8s.io", "v1alpha2", "PodGroup")),
        (GVK("scheduling.k8s.io", "v1alpha1", "Workload"),),
        (GVK("scheduling.run.ai", "v2", "Queue"),),
    )
}
"""The API versions of each kind that we try to read, the preferred version first."""
