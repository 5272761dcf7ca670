# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How an API server treats each kind: its resource, its scope, its status subresource, and which lists are merged.

For Kubernetes' own kinds, this is recorded in :mod:`controller_runtime.machinery.openapi`. For a custom resource, it is
read from the CustomResourceDefinition or, without one, from the model. A custom resource with neither is assumed to
have a status subresource and atomic lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from controller_runtime.machinery import (
    GVK,
    JSON,
    Object,
    PartialObjectMetadata,
    Resource,
    Unstructured,
    crd,
    openapi,
)
from controller_runtime.machinery.openapi import MergeSchema

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
Path = tuple[str, ...]


class ScalePaths(NamedTuple):
    """The fields of an object that its subresource ``scale`` shows."""

    spec: Path = ("spec", "replicas")
    status: Path = ("status", "replicas")
    selector: Path = ("spec", "selector")


_SCALED: Final = frozenset(
    {("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("", "ReplicationController")}
)
_ORPHANING: Final = frozenset({"Job", "ReplicationController"})


@dataclass(frozen=True, slots=True)
class KindProperties:
    """The properties of one kind."""

    gvk: GVK
    resource: Resource
    schema: MergeSchema
    scope_is_known: bool = True
    status: bool = True
    """True if the status is a subresource."""
    generation: bool = True
    """True if a change outside metadata and status increases ``metadata.generation``."""
    needs_version: bool = True
    """True if an update must have a resourceVersion."""
    orphans: bool = False
    """True if a delete without a propagation policy orphans the dependents."""
    custom: bool = True
    scale: ScalePaths | None = None
    """None if the kind has no subresource ``scale``."""
    selectable: frozenset[str] = frozenset()
    """The fields of a custom kind that a field selector may contain besides name and namespace."""


def properties_of(kind: type[Object], *, status: bool | None = None) -> KindProperties:
    """Return the properties of ``kind`` that are known without its CustomResourceDefinition.

    ``status`` is True if a custom resource has a status subresource, and None to let the model decide.
    """
    gvk = kind.gvk
    known = openapi.kinds().get(gvk)
    if known is not None:
        resource = Resource(gvk.group, gvk.version, known.plural, known.namespaced)
        return _kubernetes(gvk, resource, openapi.merge_schema(known.definition), status=known.status)
    model = None if issubclass(kind, Unstructured | PartialObjectMetadata) else kind
    markers = getattr(model, "crd_kind", None)
    if status is None:
        if markers is not None:
            status = markers.status_subresource
        else:
            status = model is None or "status" in model.model_fields
    schema = openapi.merge_schema_of_crd({}) if model is None else crd.merge_schema(model)
    resource = kind.resource or _guess(gvk)
    if gvk.group in _groups():  # a kind of a Kubernetes release other than the recorded one
        return _kubernetes(gvk, resource, schema, status=status)
    scale = None
    if markers is not None and markers.scale is not None:
        given = markers.scale
        scale = ScalePaths(
            _path(given.spec_replicas), _path(given.status_replicas), _path(given.label_selector or "")
        )
    selectable = frozenset(path.lstrip(".") for path in markers.selectable_fields) if markers else frozenset()
    return KindProperties(
        gvk,
        resource,
        schema,
        kind.resource is not None,
        status=status,
        scale=scale,
        selectable=selectable,
    )


def properties_of_crd(definition: Mapping[str, JSON]) -> list[KindProperties]:
    """Return the properties that a CustomResourceDefinition declares, for each version."""
    spec = definition["spec"]
    names = spec["names"]
    properties = []
    for version in spec["versions"]:
        gvk = GVK(spec["group"], version["name"], names["kind"])
        resource = Resource(gvk.group, gvk.version, names["plural"], spec.get("scope") != "Cluster")
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        status = "status" in (version.get("subresources") or {})
        scale = (version.get("subresources") or {}).get("scale")
        properties.append(
            KindProperties(
                gvk,
                resource,
                openapi.merge_schema_of_crd(schema),
                status=status,
                scale=None if scale is None else _scale_paths(scale),
                selectable=frozenset(
                    field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
                ),
            )
        )
    return properties


def _scale_paths(scale: Mapping[str, JSON]) -> ScalePaths:
    names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    return ScalePaths(*(_path(str(scale.get(name) or "")) for name in names))


def _path(text: str) -> Path:
    return tuple(text.strip(".").split(".")) if text else ()


@cache
def _groups() -> frozenset[str]:
    """Return the groups of Kubernetes' own kinds."""
    return frozenset(gvk.group for gvk in openapi.kinds())


def _kubernetes(gvk: GVK, resource: Resource, schema: MergeSchema, *, status: bool) -> KindProperties:
    return KindProperties(
        gvk,
        resource,
        schema,
        status=status,
        generation=gvk.kind in _GENERATION,
        needs_version=gvk.kind in _NEED_VERSION,
        orphans=gvk.kind in _ORPHANING,
        custom=False,
        scale=ScalePaths() if (gvk.group, gvk.kind) in _SCALED else None,
    )


def _guess(gvk: GVK) -> Resource:
    name = gvk.kind.lower()
    if name.endswith("y"):
        plural = f"{name[:-1]}ies"
    else:
        plural = f"{name}es" if name.endswith(("s", "x", "ch")) else f"{name}s"
    return Resource(gvk.group, gvk.version, plural, True)
