# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fields and resources of a pod as texts, for variables and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.core.v1 import Container, ObjectFieldSelector, Pod, ResourceFieldSelector
from controller_runtime.machinery import quantity

_KEYED: Final = re.compile(r"metadata\.(annotations|labels)\['([^']+)'\]")


class ConfigError(Exception):
    """The pod refers to something that does not exist or is not supported."""


def field_text(pod: Pod, selector: ObjectFieldSelector, address: str) -> str:
    """Return the text of a field.

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


def resource_text(
    pod: Pod, selector: ResourceFieldSelector, container: Container, allocatable: Mapping[str, str]
) -> str:
    """Return the text of a resource, in units of the divisor; a missing limit is the allocatable of the node.

    Raises:
        ConfigError: the container does not exist.
    """
    named = selector.container_name or container.name
    every = [*(pod.spec.init_containers or []), *(pod.spec.containers or [])]
    found = next((each for each in every if each.name == named), None)
    if found is None:
        raise ConfigError(f"container {named} not found")
    kind, _, resource = selector.resource.partition(".")
    given = found.resources
    limits = (given.limits if given else None) or {}
    requests = (given.requests if given else None) or {}
    amount = (
        requests.get(resource, "0")
        if kind == "requests"
        else limits.get(resource, allocatable.get(resource, "0"))
    )
    divisor = quantity.parse(selector.divisor or "0").nanos or 10**9
    return str(-(-quantity.parse(amount).nanos // divisor))


def _listed(values: Mapping[str, str]) -> str:
    return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted(values.items()))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
