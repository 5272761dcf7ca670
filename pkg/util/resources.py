# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Computes a pod's resource requests as the scheduler does, and merges resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller_runtime.apis.core.v1 import Container, PodSpec, ResourceRequirements
from controller_runtime.machinery import quantity

Requests = dict[str, str]

_POD_LEVEL: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"


def pod_requests(spec: PodSpec) -> Requests:
    """Return a pod's requests.

    For each resource, a pod requests the larger of two amounts: the sum of its containers and the amount of its largest
    init container. An init container with the restart policy ``Always`` counts as a container, and is also added to
    each later init container. Pod-level requests replace the computed requests. At the end, the pod's overhead is
    added.
    """
    total: Requests = {}
    for container in spec.containers or ():
        _add(total, _requests(container))
    sidecars: Requests = {}
    peak: Requests = {}
    for container in spec.init_containers or ():
        own = _requests(container)
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            together = {name: sidecars[name] for name in own}
        else:
            together = dict(own)  # a sum has the suffixes of its first summand
            _add(together, {name: sidecars[name] for name in own if name in sidecars})
        _raise_to(peak, together)  # which already has the sidecars' other resources
    _raise_to(total, peak)
    if spec.resources is not None:
        for name, amount in (spec.resources.requests or {}).items():
            if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
                total[name] = amount
    if spec.overhead:
        _add(total, spec.overhead)
    return total


def merged(base: ResourceRequirements | None, wanted: ResourceRequirements) -> ResourceRequirements:
    """Return the limits and requests of both. Amounts in ``wanted`` take precedence. Claims are dropped."""
    limits, requests = (base.limits, base.requests) if base is not None else (None, None)
    return ResourceRequirements(
        limits={**(limits or {}), **(wanted.limits or {})} or None,
        requests={**(requests or {}), **(wanted.requests or {})} or None,
    )


def _requests(container: Container) -> Mapping[str, str]:
    return (container.resources.requests if container.resources is not None else None) or {}


def _add(total: Requests, more: Mapping[str, str]) -> None:
    for name, amount in more.items():
        total[name] = quantity.add(total[name], amount) if name in total else amount


def _raise_to(total: Requests, floor: Mapping[str, str]) -> None:
    for name, amount in floor.items():
        if name not in total or quantity.cmp(amount, total[name]) > 0:
            total[name] = amount
