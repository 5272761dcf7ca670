# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A Reader over objects as they are written down, which remembers what it was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, Unpack

from controller_runtime import client
from controller_runtime.apis.machinery import labels as selectors
from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.gvk import GVK, NamespacedName
from controller_runtime.apis.machinery.object import Object, PartialObjectMetadata

from pkg.apis.scheme import default_scheme

T = TypeVar("T", bound=Object)

_SCHEME: Final = default_scheme()


class Key(NamedTuple):
    """Which object."""

    kind: GVK
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def key_of(data: Mapping[str, Any], namespace: str = "") -> Key:
    """Return which object ``data`` is; one without a namespace is in ``namespace``, unless its kind has none."""
    kind = GVK.parse(data["apiVersion"], data["kind"])
    metadata = data.get("metadata") or {}
    resource = _SCHEME.kind_for(kind).resource
    if resource is not None and not resource.namespaced:
        return Key(kind, "", metadata.get("name") or "")
    return Key(kind, metadata.get("namespace") or namespace, metadata.get("name") or "")


class Snapshot:
    """Objects by key, as JSON. What it returns shares parts with them and may not be changed."""

    def __init__(self, objects: Mapping[Key, dict[str, Any]]) -> None:
        self._objects = objects
        self.whole: set[Key] = set()
        """What was read whole."""
        self.listed: set[Key] = set()
        """What was returned in a list."""
        self.missing: dict[Key, None] = {}
        """What was asked for and is not there."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object; NotFoundError when there is none."""
        asked = Key(kind.gvk, *key)
        data = self._objects.get(asked)
        if data is None:
            self.missing[asked] = None
            resource = kind.resource.group_resource if kind.resource else kind.gvk.group_kind
            raise NotFoundError(f'{resource} "{asked.name}" not found', code=404, reason="NotFound")
        if issubclass(kind, PartialObjectMetadata):
            return kind.from_dict({"metadata": data.get("metadata") or {}})
        self.whole.add(asked)
        return kind.from_dict(data)

    async def list(self, kind: type[T], **options: Unpack[client.ListOptions]) -> client.ObjectList[T]:
        """Return the objects of a kind by namespace and labels; other options are not implemented."""
        client.check_options(client.ListOptions, options)
        if options.get("fields") or options.get("limit") or options.get("continue_token"):
            raise NotImplementedError("a snapshot lists by namespace and labels")
        namespace, selector = options.get("namespace", ""), selectors.selector(options.get("labels"))
        picked = [
            key
            for key in self._of(kind.gvk, namespace)
            if selector.matches((self._objects[key].get("metadata") or {}).get("labels"))
        ]
        self.listed.update(picked)
        return client.ObjectList([kind.from_dict(self._objects[key]) for key in picked])

    def _of(self, kind: GVK, namespace: str) -> Iterable[Key]:
        return sorted(key for key in self._objects if key.kind == kind and namespace in ("", key.namespace))
