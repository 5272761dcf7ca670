# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The environment of a container: references, fields of the pod and the expansion of $(NAME), as in Kubernetes."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVar,
    ObjectFieldSelector,
    Pod,
    ResourceFieldSelector,
    ResourceRequirements,
    Secret,
    SecretKeySelector,
)
from controller_runtime.client import Reader
from controller_runtime.machinery import GVK, Object, metadata_only, quantity
from controller_runtime.machinery.errors import NotFoundError

_KEYED: Final = re.compile(r"metadata\.(annotations|labels)\['([^']+)'\]")
T = TypeVar("T", bound=Object)
_CLAIM: Final = metadata_only(GVK("", "v1", "PersistentVolumeClaim"))
_MACHINE: Final = {
    "cpu": str(os.cpu_count() or 1),
    "memory": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
}
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")


class ConfigError(Exception):
    """The pod refers to something that does not exist or is not supported."""


def field_text(pod: Pod, selector: ObjectFieldSelector, address: str) -> str:
    """Return the value of a field of the pod, or an empty text if the pod does not set the field.

    Raises:
        ConfigError: the field is not supported.
    """
    path = selector.field_path
    if found := _KEYED.fullmatch(path):
        return (pod.annotations if found[1] == "annotations" else pod.labels).get(found[2], "")
    values: Mapping[str, str | None] = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.metadata.uid,
        "metadata.annotations": _listed(pod.annotations),
        "metadata.labels": _listed(pod.labels),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": "127.0.0.1",
        "status.hostIPs": "127.0.0.1",
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path not in values:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return values[path] or ""


def resource_text(pod: Pod, selector: ResourceFieldSelector, container: Container) -> str:
    """Return a request or limit of a container, divided by the divisor and rounded up.

    A container without a limit may use all of this machine's CPUs and memory. Any other amount that is not set is 0.

    Raises:
        ConfigError: the container does not exist.
    """
    named = selector.container_name or container.name
    every = [*(pod.spec.init_containers or []), *(pod.spec.containers or [])]
    found = next((each for each in every if each.name == named), None)
    if found is None:
        raise ConfigError(f"container {named} not found")
    kind, _, resource = selector.resource.partition(".")
    given = found.resources or ResourceRequirements()
    amounts = (given.requests if kind == "requests" else given.limits) or {}
    amount = amounts.get(resource) or (_MACHINE.get(resource) if kind == "limits" else None) or "0"
    divisor = quantity.parse(selector.divisor or "0").nanos or 10**9
    return str(-(-quantity.parse(amount).nanos // divisor))


def _listed(values: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted(values.items()))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace each $(NAME) in ``text`` by its value, and $$ by $. A $(NAME) without a value is not changed."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else values.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


@dataclass
class References:
    """Reads the Secrets, ConfigMaps and claims of one namespace.

    An object is read again only if it was not found before.
    """

    reader: Reader
    namespace: str
    _read: dict[tuple[str, str], Object] = field(default_factory=dict)

    async def secret(self, name: str, *, optional: bool | None) -> dict[str, bytes] | None:
        """Return the data of a Secret, or None if it is optional and does not exist.

        Raises:
            ConfigError: the Secret is not optional and does not exist.
            StatusError: the Secret cannot be read.
        """
        found = await self._get(Secret, name, "secret", optional)
        return (
            None
            if found is None
            else {key: base64.b64decode(each) for key, each in (found.data or {}).items()}
        )

    async def config_map(self, name: str, *, optional: bool | None) -> dict[str, bytes] | None:
        """Return the data of a ConfigMap. Raises like `secret`."""
        found = await self._get(ConfigMap, name, "configmap", optional)
        if found is None:
            return None
        texts = {key: each.encode() for key, each in (found.data or {}).items()}
        return {**texts, **{key: base64.b64decode(each) for key, each in (found.binary_data or {}).items()}}

    async def claim(self, name: str) -> str:
        """Return the uid of a claim. Raises like `secret`."""
        found = await self._get(_CLAIM, name, "persistentvolumeclaim", optional=False)
        return (found.metadata.uid or "") if found is not None else ""

    async def _get(self, kind: type[T], name: str, word: str, optional: bool | None) -> T | None:
        key = (word, name)
        found = self._read.get(key)
        if isinstance(found, kind):
            return found
        try:
            made = await self.reader.get(kind, (self.namespace, name))
        except NotFoundError as error:
            if optional:
                return None
            raise ConfigError(f'{word} "{name}" not found') from error
        self._read[key] = made
        return made


@dataclass(frozen=True)
class Environment:
    """Makes the environments of a pod's containers. ``address`` is the address of the pod."""

    pod: Pod
    address: str
    references: References

    async def of(self, container: Container) -> dict[str, str]:
        """Return the variables of a container.

        Raises:
            ConfigError: an object or key that the variables refer to does not exist, or is not supported.
            StatusError: an object cannot be read.
        """
        values: dict[str, str] = {}
        for source in container.env_from or []:
            values.update(await self._all(source))
        for variable in container.env or []:
            value = await self._value(variable, container, values)
            if value is not None:
                values[variable.name] = value
        return values

    async def _all(self, source: EnvFromSource) -> dict[str, str]:
        data: Mapping[str, bytes] | None = None
        if (config_map := source.config_map_ref) is not None:
            data = await self.references.config_map(config_map.name or "", optional=config_map.optional)
        elif (secret := source.secret_ref) is not None:
            data = await self.references.secret(secret.name or "", optional=secret.optional)
        return {
            f"{source.prefix or ''}{key}": each.decode(errors="replace") for key, each in (data or {}).items()
        }

    async def _value(self, variable: EnvVar, container: Container, values: Mapping[str, str]) -> str | None:
        source = variable.value_from
        if source is None:
            return expand(variable.value or "", values)
        if source.field_ref is not None:
            return field_text(self.pod, source.field_ref, self.address)
        if source.resource_field_ref is not None:
            return resource_text(self.pod, source.resource_field_ref, container)
        key: ConfigMapKeySelector | SecretKeySelector | None = source.config_map_key_ref
        kind, read = "ConfigMap", self.references.config_map
        if key is None:
            key, kind, read = source.secret_key_ref, "Secret", self.references.secret
        if key is None:
            raise ConfigError(f"the source of variable {variable.name} is not supported")
        data = await read(key.name or "", optional=key.optional)
        if data is not None and key.key in data:
            return data[key.key].decode(errors="replace")
        if key.optional:
            return None
        raise ConfigError(f"couldn't find key {key.key} in {kind} {self.pod.namespace}/{key.name}")
