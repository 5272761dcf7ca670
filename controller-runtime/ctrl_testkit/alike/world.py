# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds, objects and results of the cases that compare the in-memory client with a real API server."""

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, Final

from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import (
    ConfigMap,
    Pod,
)
from controller_runtime.client import Backend
from controller_runtime.envtest import open_crd
from controller_runtime.machinery import GVK, LazyObject, Object, errors, openapi, unstructured

GROUP: Final = "alike.example.org"
RECORDED_NAMESPACE: Final = "team"
"""The namespace in recorded results."""


class Widget(Object, group=GROUP, version="v1", kind="Widget", plural="widgets"):
    """A custom resource whose status is a subresource; some of its lists merge."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Gadget(Object, group=GROUP, version="v1", kind="Gadget", plural="gadgets"):
    """A custom resource without subresources."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Scaled(Object, group=GROUP, version="v1", kind="Scaled", plural="scaleds"):
    """A custom resource with the subresource ``scale``."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Strict(Object, group=GROUP, version="v1", kind="Strict", plural="stricts"):
    """A custom resource whose schema has constraints."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Planet(Object, group=GROUP, version="v1", kind="Planet", plural="planets", namespaced=False):
    """A cluster-scoped custom resource, with another field instead of a spec."""

    mass: int | None = None


RAW_WIDGET: Final = unstructured(Widget.gvk)
RAW_PLANET: Final = unstructured(Planet.gvk)
CRD: Final = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMED: Final = {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}
LISTS: Final = {
    "plain": {"type": "array", "items": NAMED},
    "containers": {"type": "array", "items": NAMED},
    "keyed": {
        "type": "array",
        "items": NAMED | {"required": ["name"]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "whole": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "atomic",
    },
}


def definition(kind: type[Object], properties: dict[str, Any], **version: Any) -> dict[str, Any]:
    assert kind.resource is not None
    return open_crd(
        kind.gvk,
        kind.resource.plural,
        namespaced=kind.resource.namespaced,
        schema={"type": "object", "properties": properties},
        **version,
    )


CONDITION: Final = openapi.definition("meta.v1.Condition")
STRICT: Final = {
    "spec": {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 5},
            "colour": {"type": "string", "enum": ["red", "green"]},
            "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]*$"},
            "parts": {
                "type": "array",
                "maxItems": 2,
                "items": {"type": "object", "required": ["name"]} | NAMED,
            },
            "port": {"x-kubernetes-int-or-string": True},
            "ratio": {"type": "number"},
            "none": {"type": "string", "nullable": True},
            "odd": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 1"}]},
            "by_name": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
        },
    },
    "status": {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": CONDITION,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            }
        },
    },
}


CRDS: Final = [
    definition(
        Widget,
        {"spec": ANYTHING | {"properties": LISTS}, "status": ANYTHING},
        subresources={"status": {}},
    ),
    definition(Gadget, {"spec": ANYTHING, "status": ANYTHING}),
    definition(
        Scaled,
        {"spec": ANYTHING, "status": ANYTHING},
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.size",
                "labelSelectorPath": ".status.chosen",
            },
        },
    ),
    definition(
        Strict,
        STRICT,
        subresources={"status": {}},
        selectableFields=[{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}],
    ),
    definition(Planet, {"mass": {"type": "integer"}}),
]

Observation = Any
Case = Callable[[Backend, str], Awaitable[list[Observation]]]


def cases_of(*modules: ModuleType) -> dict[str, Case]:
    """Return the cases in ``modules``: their public coroutine functions."""
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


async def observe(call: Awaitable[Any]) -> Observation:
    """Return the result of a call as plain data."""
    try:
        found = await call
    except errors.StatusError as error:
        causes = {(each.get("reason"), each.get("field")) for each in error.causes}
        return ["error", type(error).__name__, error.code, error.reason, str(error), sorted(map(str, causes))]
    except ValueError as error:
        return ["error", "ValueError", str(error)]
    if isinstance(found, list):
        return ["list", *[each.to_dict() for each in found]]
    if isinstance(found, LazyObject):
        found = found.object
    return ["object", found.to_dict()] if isinstance(found, Object) else ["value", found]


def comparable(observations: Any) -> Any:
    """Return results in which UIDs, versions and times are replaced, because they differ between servers.

    UIDs and versions are numbered in the order in which they appear.
    """
    seen: dict[str, str] = {}

    def name(value: str, what: str) -> str:
        return seen.setdefault(
            value, f"<{what} {sum(each.startswith(f'<{what}') for each in seen.values())}>"
        )

    def walk(value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {key: walk(each, key) for key, each in sorted(value.items()) if key != "managedFields"}
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str) and value:
            if field == "uid" and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
                return name(value, "uid")
            if field == "resourceVersion":
                return name(value, "version")
            if field in ("creationTimestamp", "deletionTimestamp"):
                return "<time>"
            for text, token in seen.items():
                value = re.sub(rf"\b{re.escape(text)}\b", token, value)
            value = re.sub(r"in record \([0-9a-f-]+\)", "in record (<this>)", value)
            value = re.sub(r"in the precondition \(\d+\)", "in the precondition (<that>)", value)
        return value

    return walk(observations)


def recorded(observations: Any, namespace: str) -> Any:
    """Return comparable results as they are recorded: in one namespace, and with a hash in place of each long text."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {walk(key): walk(each) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str) and len(value) > 2000:
            return f"{len(value)} characters: {hashlib.sha256(value.encode()).hexdigest()}"
        return value

    return walk(json.loads(json.dumps(comparable(observations)).replace(namespace, RECORDED_NAMESPACE)))


def config_map(ns: str, data: dict[str, str] | None = None, name: str = "c", **metadata: Any) -> ConfigMap:
    body: dict[str, Any] = {"metadata": {"name": name, "namespace": ns, **metadata}}
    return ConfigMap.from_dict(body if data is None else {**body, "data": data})


def widget(ns: str, kind: type[Any] = Widget, name: str = "w", **parts: Any) -> Any:
    metadata = {"name": name, "namespace": ns, **parts.pop("metadata", {})}
    return kind.from_dict({"metadata": metadata, **parts})


def strict(ns: str, **parts: Any) -> Any:
    return Strict.from_dict({"metadata": {"name": "s", "namespace": ns}, **parts})


def planet(ns: str, kind: type[Any] = Planet, **parts: Any) -> Any:
    return kind.from_dict({"metadata": {"name": f"p-{ns}", **parts.pop("metadata", {})}, **parts})


def lease(ns: str, **spec: Any) -> Lease:
    return Lease.from_dict({"metadata": {"name": "l", "namespace": ns}, "spec": spec})


def job(ns: str, **metadata: Any) -> Job:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return Job.from_dict(
        {"metadata": {"name": "j", "namespace": ns, **metadata}, "spec": {"template": template}}
    )


def pod(ns: str, **spec: Any) -> Pod:
    containers = [{"name": "one", "image": "i:1"}]
    return Pod.from_dict(
        {"metadata": {"name": "p", "namespace": ns}, "spec": {"containers": containers, **spec}}
    )


def metadata(obj: Object) -> dict[str, Any]:
    """Return only the metadata without labels, for a kind in whose spec the server sets defaults."""
    found: Any = obj.to_dict()["metadata"]
    found.pop("labels", None)
    return dict(found)
