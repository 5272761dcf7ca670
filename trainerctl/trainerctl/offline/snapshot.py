# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A Reader over objects of the input that records what is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar, Unpack

from controller_runtime import client
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.machinery import (
    GVK,
    JSON,
    NamespacedName,
    Object,
    PartialObjectMetadata,
    unstructured,
)
from controller_runtime.machinery import labels as selectors
from controller_runtime.machinery.errors import NotFoundError
from pkg.apis import default_scheme
from pkg.apis.kai.v2alpha2 import PodGroup

from trainerctl.offline.inputfiles import InputObject

T = TypeVar("T", bound=Object)

_SCHEME: Final = default_scheme()
_MODELS: Final[dict[GVK, type[Object]]] = {
    kind.gvk: kind for kind in (ConfigMap, Pod, PodGroup, PriorityClass)
}
"""The kinds whose fields groupers read; for other kinds, only the metadata is checked."""


class Key(NamedTuple):
    """The identity of an object."""

    kind: GVK
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def key_of(data: Mapping[str, JSON], namespace: str = "") -> Key:
    """Return the key of ``data``. ``namespace`` is the namespace of namespaced objects that do not set one."""
    kind = GVK.parse(data["apiVersion"], data["kind"])
    metadata = data.get("metadata") or {}
    resource = _SCHEME.kind_for(kind).resource
    if resource is not None and not resource.namespaced:
        return Key(kind, "", metadata.get("name") or "")
    return Key(kind, metadata.get("namespace") or namespace, metadata.get("name") or "")


def by_key(found: Iterable[InputObject], namespace: str) -> dict[Key, dict[str, JSON]]:
    """Return the objects of the input by key; namespaced objects that do not set a namespace get ``namespace``.

    Raises:
        InputError: an object is a duplicate, has no name, or has invalid metadata, or an object of a kind whose fields
            groupers read is not valid.
    """
    objects: dict[Key, dict[str, JSON]] = {}
    first: dict[Key, InputObject] = {}
    for each in found:
        each.decode(_MODELS.get(each.gvk) or unstructured(each.gvk))
        key = key_of(each.data, namespace)
        if not key.name:
            raise each.error(("metadata", "name"), "a name is expected")
        if key in objects:
            before = first[key]
            raise each.error((), f"duplicate of {before.source}, document {before.number}")
        metadata = each.data["metadata"] | ({"namespace": key.namespace} if key.namespace else {})
        objects[key], first[key] = {**each.data, "metadata": metadata}, each
    return objects


class Snapshot:
    """A Reader of JSON objects by key. The objects that it returns share data with them and must not be changed."""

    def __init__(self, objects: Mapping[Key, dict[str, JSON]]) -> None:
        self._objects = objects
        self.whole: set[Key] = set()
        """Objects that were read completely."""
        self.listed: set[Key] = set()
        """Objects that were returned in a list."""
        self.missing: dict[Key, None] = {}
        """Objects that were requested and do not exist."""

    async def get(self, kind: type[T], key: NamespacedName | tuple[str, str]) -> T:
        """Return an object, and record that it was read.

        Raises:
            NotFoundError: the object does not exist.
        """
        wanted = Key(kind.gvk, *key)
        data = self._objects.get(wanted)
        if data is None:
            self.missing[wanted] = None
            resource = kind.resource.group_resource if kind.resource else kind.gvk.group_kind
            raise NotFoundError(f'{resource} "{wanted.name}" not found', code=404, reason="NotFound")
        if issubclass(kind, PartialObjectMetadata):
            return kind.from_dict({"metadata": data.get("metadata") or {}})
        self.whole.add(wanted)
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
