# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The properties of a kind in an API server: its resource, its status subresource and the rules of its writes.

Kubernetes' own kinds behave as in release 1.35. A custom resource is described by its CustomResourceDefinition,
otherwise by its model; a kind without either is assumed to have a status subresource and atomic lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Final

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import GVK, Resource
from controller_runtime.apis.machinery.object import Object, PartialObjectMetadata, Unstructured

from . import shapes
from .shapes import Shape

_MODELS: Final[Mapping[str, str]] = {
    "": "core",
    "admissionregistration.k8s.io": "admissionregistration",
    "apiextensions.k8s.io": "apiextensions",
    "apps": "apps",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "batch": "batch",
    "coordination.k8s.io": "coordination",
    "node.k8s.io": "node",
    "rbac.authorization.k8s.io": "rbac",
    "scheduling.k8s.io": "scheduling",
}
"""Packages with models of Kubernetes' own groups."""

_GROUPS: Final = frozenset(
    {
        *_MODELS,
        "apiregistration.k8s.io",
        "autoscaling",
        "certificates.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "policy",
        "resource.k8s.io",
        "storage.k8s.io",
    }
)
_CLUSTER_SCOPED: Final = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "CSIDriver",
        "CSINode",
        "FlowSchema",
        "IngressClass",
        "PersistentVolume",
        "PriorityLevelConfiguration",
        "StorageClass",
        "VolumeAttachment",
    }
)
"""Cluster-scoped kinds of Kubernetes without a model here."""

_STATUS: Final = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "FlowSchema",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodDisruptionBudget",
        "PodGroup",
        "PriorityLevelConfiguration",
        "ReplicaSet",
        "ReplicationController",
        "ResourceClaim",
        "ResourceQuota",
        "Service",
        "StatefulSet",
        "ValidatingAdmissionPolicy",
        "VolumeAttachment",
    }
)
_GENERATION: Final = frozenset(
    {
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "EndpointSlice",
        "FlowSchema",
        "Ingress",
        "Job",
        "MutatingWebhookConfiguration",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PodTemplate",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "ValidatingAdmissionPolicy",
        "ValidatingWebhookConfiguration",
    }
)
_NEED_VERSION: Final = frozenset(
    {
        "CustomResourceDefinition",
        "Lease",
        "MutatingWebhookConfiguration",
        "PodDisruptionBudget",
        "RuntimeClass",
        "ValidatingAdmissionPolicy",
        "ValidatingWebhookConfiguration",
    }
)
_ORPHANING: Final = frozenset({"Job", "ReplicationController"})


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties of one kind."""

    gvk: GVK
    resource: Resource
    shape: Shape
    scope_is_known: bool = True
    status: bool = True
    """The status is a subresource."""
    generation: bool = True
    """Objects count changes outside metadata and status in ``metadata.generation``."""
    needs_version: bool = True
    """An update must carry a resourceVersion."""
    orphans: bool = False
    """A delete without a propagation policy orphans the dependents."""
    custom: bool = True


def is_custom(gvk: GVK) -> bool:
    """Return True if the kind is not one of Kubernetes' own."""
    return gvk.group not in _GROUPS


def facts_for(kind: type[Object], *, status: bool | None = None) -> Facts:
    """Return the properties of ``kind`` without a CustomResourceDefinition.

    ``status`` sets whether a custom resource has a status subresource; None uses the model.
    """
    gvk = kind.gvk
    if not is_custom(gvk):
        return _kubernetes(gvk)
    model = _model_of(kind)
    if status is None:
        markers = getattr(model, "crd_kind", None)
        if markers is not None:
            status = markers.status_subresource
        else:
            status = model is None or "status" in model.model_fields
    shape = shapes.of_schema({}) if model is None else shapes.of_model(model, by_name=False)
    known = kind.resource is not None
    return Facts(gvk, kind.resource or _guess(gvk), shape, known, status=status)


def facts_of_crd(crd: Mapping[str, JSON]) -> list[Facts]:
    """Return the properties that a CustomResourceDefinition declares, for each version."""
    spec = crd["spec"]
    names = spec["names"]
    facts = []
    for version in spec["versions"]:
        gvk = GVK(spec["group"], version["name"], names["kind"])
        resource = Resource(gvk.group, gvk.version, names["plural"], spec.get("scope") != "Cluster")
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        status = "status" in (version.get("subresources") or {})
        facts.append(Facts(gvk, resource, shapes.of_schema(schema), status=status))
    return facts


def knows_more(kind: type[Object], facts: Facts) -> bool:
    """Return True if ``kind`` declares its resource and ``facts`` were guessed without it."""
    return facts.custom and not facts.scope_is_known and kind.resource is not None


@lru_cache(maxsize=256)
def _kubernetes(gvk: GVK) -> Facts:
    model = next((each for each in _models(gvk.group, gvk.version) if each.gvk == gvk), None)
    if model is not None and model.resource is not None:
        resource, shape = model.resource, shapes.of_model(model, by_name=True)
    else:
        resource = _guess(gvk)._replace(namespaced=gvk.kind not in _CLUSTER_SCOPED)
        shape = shapes.of_schema({}, by_name=True)
    return Facts(
        gvk,
        resource,
        shape,
        status=gvk.kind in _STATUS,
        generation=gvk.kind in _GENERATION,
        needs_version=gvk.kind in _NEED_VERSION,
        orphans=gvk.kind in _ORPHANING,
        custom=False,
    )


def _models(group: str, version: str) -> list[type[Object]]:
    package = _MODELS.get(group)
    if package is None:
        return []
    try:
        module = import_module(f"controller_runtime.apis.{package}.{version}")
    except ModuleNotFoundError:
        return []
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Object) and hasattr(each, "gvk")
    ]


def _model_of(kind: type[Object]) -> type[Object] | None:
    return None if issubclass(kind, Unstructured | PartialObjectMetadata) else kind


def _guess(gvk: GVK) -> Resource:
    name = gvk.kind.lower()
    if name.endswith("y"):
        plural = f"{name[:-1]}ies"
    else:
        plural = f"{name}es" if name.endswith(("s", "x", "ch")) else f"{name}s"
    return Resource(gvk.group, gvk.version, plural, True)
