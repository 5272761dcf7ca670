# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A scheme with all Kubernetes kinds of this package."""

from __future__ import annotations

from controller_runtime.machinery import Object, Scheme


def default_scheme() -> Scheme:
    """Return a new scheme with all kinds of :mod:`controller_runtime.apis`, which are imported on first use."""
    return Scheme(later=lambda: (*kinds(), *generated_kinds()))


def generated_kinds() -> tuple[type[Object], ...]:
    """Import the kinds whose modules are generated, and return them."""
    from controller_runtime.apis.autoscaling import v2 as autoscaling
    from controller_runtime.apis.certificates import v1 as certificates
    from controller_runtime.apis.core import v1 as core
    from controller_runtime.apis.discovery import v1 as discovery
    from controller_runtime.apis.networking import v1 as networking
    from controller_runtime.apis.policy import v1 as policy
    from controller_runtime.apis.resource import v1 as resource
    from controller_runtime.apis.storage import v1 as storage

    return (
        autoscaling.HorizontalPodAutoscaler,
        certificates.CertificateSigningRequest,
        core.Endpoints,
        core.PersistentVolume,
        core.PersistentVolumeClaim,
        core.ResourceQuota,
        discovery.EndpointSlice,
        networking.Ingress,
        networking.IngressClass,
        networking.NetworkPolicy,
        policy.PodDisruptionBudget,
        resource.DeviceClass,
        resource.ResourceClaim,
        resource.ResourceClaimTemplate,
        resource.ResourceSlice,
        storage.CSIDriver,
        storage.CSINode,
        storage.CSIStorageCapacity,
        storage.StorageClass,
        storage.VolumeAttachment,
        storage.VolumeAttributesClass,
    )


def kinds() -> tuple[type[Object], ...]:
    """Import the kinds whose modules are written by hand, and return them."""
    from controller_runtime.apis.admission import v1 as admission
    from controller_runtime.apis.admissionregistration import v1 as admissionregistration
    from controller_runtime.apis.apiextensions import v1 as apiextensions
    from controller_runtime.apis.apps import v1 as apps
    from controller_runtime.apis.authentication import v1 as authentication
    from controller_runtime.apis.authorization import v1 as authorization
    from controller_runtime.apis.autoscaling import v1 as autoscaling
    from controller_runtime.apis.batch import v1 as batch
    from controller_runtime.apis.coordination import v1 as coordination
    from controller_runtime.apis.core import v1 as core
    from controller_runtime.apis.node import v1 as node
    from controller_runtime.apis.policy import v1 as policy
    from controller_runtime.apis.rbac import v1 as rbac
    from controller_runtime.apis.scheduling import v1 as scheduling

    return (
        admission.AdmissionReview,
        admissionregistration.MutatingWebhookConfiguration,
        admissionregistration.ValidatingWebhookConfiguration,
        apiextensions.CustomResourceDefinition,
        apps.ControllerRevision,
        apps.DaemonSet,
        apps.Deployment,
        apps.ReplicaSet,
        apps.StatefulSet,
        authentication.TokenRequest,
        authentication.TokenReview,
        authorization.SubjectAccessReview,
        autoscaling.Scale,
        batch.CronJob,
        batch.Job,
        coordination.Lease,
        core.ConfigMap,
        core.Event,
        core.LimitRange,
        core.Namespace,
        core.Node,
        core.Pod,
        core.PodTemplate,
        core.Secret,
        core.Service,
        core.ServiceAccount,
        node.RuntimeClass,
        policy.Eviction,
        rbac.ClusterRole,
        rbac.ClusterRoleBinding,
        rbac.Role,
        rbac.RoleBinding,
        scheduling.PriorityClass,
    )
