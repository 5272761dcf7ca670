# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Install CustomResourceDefinitions and wait until they are served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Unstructured, unstructured
from controller_runtime.client import LiveClient
from controller_runtime.client.interfaces import Writer
from controller_runtime.envtest.eventually import eventually
from controller_runtime.envtest.manifests import Manifest, apply_manifests
from controller_runtime.rest import NoKindMatchError

CRD: Final = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))


async def install_crds(writer: Writer, manifests: Iterable[Manifest]) -> list[str]:
    """Apply the CRDs among ``manifests`` and return their names (``jobsets.jobset.x-k8s.io``).

    The function does not wait until they are served; use `wait_established` for that.
    """
    crds = [manifest for manifest in manifests if manifest.get("kind") == "CustomResourceDefinition"]
    await apply_manifests(writer, crds)
    return [str(manifest["metadata"]["name"]) for manifest in crds]


async def wait_established(client: LiveClient, names: Iterable[str], *, timeout: float = 30) -> None:
    """Return once each of the named CRDs is served and listed in discovery, which lags behind its condition.

    Raises:
        EventuallyError: a CRD is not served in time. The message contains its name and its conditions.
    """
    for name in names:

        async def served(name: str = name) -> bool:
            crd = await client.get(CRD, ("", name))
            conditions = _conditions(crd)
            assert conditions.get("Established") == "True", conditions  # noqa: S101 eventually reports it
            client.mapper.reset()
            try:
                for kind in _kinds(crd):
                    await client.mapper.discover(kind)
            except NoKindMatchError:
                return False
            return True

        await eventually(served, timeout=timeout, reason=f"CRD {name} is established")


def kind_of(manifest: Manifest) -> tuple[str, str]:
    """Return the group and kind that a CRD defines, or empty strings if ``crd`` is not a CRD."""
    spec = manifest.get("spec") if manifest.get("kind") == "CustomResourceDefinition" else None
    return (spec["group"], spec["names"]["kind"]) if spec else ("", "")


def _kinds(crd: Unstructured) -> list[GVK]:
    group, kind = crd.nested("spec", "group"), crd.nested("spec", "names", "kind")
    return [GVK(group, each["name"], kind) for each in crd.nested("spec", "versions") or () if each["served"]]


def _conditions(crd: Unstructured) -> dict[str, object]:
    conditions = crd.nested("status", "conditions")
    found = conditions if isinstance(conditions, list) else []
    return {str(each["type"]): each["status"] for each in found if isinstance(each, dict)}
