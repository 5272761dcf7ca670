# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which lists of Kubernetes' built-in kinds merge in a strategic merge patch, and by which key (``patchMergeKey``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from .gvk import GVK


class Schema(msgspec.Struct, frozen=True):
    """The merge rules of a struct: its fields with special rules."""

    fields: Mapping[str, Member] = {}


class Member(msgspec.Struct, frozen=True):
    """A field with a struct, or with a list that merges by ``key``, or as a set if there is no key."""

    schema: Schema = Schema()
    merge: bool = False
    key: str = ""


_PLAIN: Final = Schema()
REPLACED: Final = Member()
"""A field that is replaced as a whole."""


def _by(key: str, schema: Schema = _PLAIN) -> Member:
    return Member(schema, merge=True, key=key)


_METADATA: Final = Schema({"finalizers": Member(merge=True), "ownerReferences": _by("uid")})
_CONTAINER: Final = Schema(
    {
        "env": _by("name"),
        "ports": _by("containerPort"),
        "volumeDevices": _by("devicePath"),
        "volumeMounts": _by("mountPath"),
    }
)
_POD_SPEC: Final = Schema(
    {
        "containers": _by("name", _CONTAINER),
        "ephemeralContainers": _by("name", _CONTAINER),
        "hostAliases": _by("ip"),
        "imagePullSecrets": _by("name"),
        "initContainers": _by("name", _CONTAINER),
        "resourceClaims": _by("name"),
        "schedulingGates": _by("name"),
        "topologySpreadConstraints": _by("topologyKey"),
        "volumes": _by("name"),
    }
)
_CONDITIONS: Final = Member(Schema({"conditions": _by("type")}))
POD_TEMPLATE: Final = Schema({"metadata": Member(_METADATA), "spec": Member(_POD_SPEC)})
"""A PodTemplateSpec."""

_JOB_SPEC: Final = Schema({"template": Member(POD_TEMPLATE)})
JOB_TEMPLATE: Final = Schema({"metadata": Member(_METADATA), "spec": Member(_JOB_SPEC)})
"""A JobTemplateSpec."""

_POD_STATUS: Final = Schema({"conditions": _by("type"), "podIPs": _by("ip"), "hostIPs": _by("ip")})


def _kind(**fields: Member) -> Schema:
    return Schema({"metadata": Member(_METADATA), **fields})


_WORKLOAD: Final = _kind(spec=Member(_JOB_SPEC), status=_CONDITIONS)

SCHEMAS: Final[Mapping[str, Schema]] = {
    "ConfigMap": _kind(),
    "ControllerRevision": _kind(),
    "CronJob": _kind(spec=Member(Schema({"jobTemplate": Member(JOB_TEMPLATE)}))),
    "DaemonSet": _WORKLOAD,
    "Deployment": _WORKLOAD,
    "Event": _kind(),
    "Job": _WORKLOAD,
    "Lease": _kind(),
    "LimitRange": _kind(),
    "Namespace": _kind(status=_CONDITIONS),
    "Node": _kind(
        spec=Member(Schema({"podCIDRs": Member(merge=True)})),
        status=Member(Schema({"conditions": _by("type"), "addresses": _by("type")})),
    ),
    "Pod": _kind(spec=Member(_POD_SPEC), status=Member(_POD_STATUS)),
    "PodTemplate": _kind(template=Member(POD_TEMPLATE)),
    "PriorityClass": _kind(),
    "ReplicaSet": _WORKLOAD,
    "RuntimeClass": _kind(),
    "Secret": _kind(),
    "Service": _kind(spec=Member(Schema({"ports": _by("port")})), status=_CONDITIONS),
    "ServiceAccount": _kind(secrets=_by("name")),
    "StatefulSet": _WORKLOAD,
}
"""Schemas by kind. Custom resources have none: the API server rejects a strategic merge patch of one with 415."""
_GROUPS: Final = frozenset(
    {"", "apps", "batch", "coordination.k8s.io", "events.k8s.io", "node.k8s.io", "scheduling.k8s.io"}
)


def schema_of(gvk: GVK) -> Schema | None:
    """Return the merge rules of a kind, or None for custom resources and for built-in kinds without a schema here."""
    return SCHEMAS.get(gvk.kind) if gvk.group in _GROUPS else None
