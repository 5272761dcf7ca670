# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Install CustomResourceDefinitions and wait until they are served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Unstructured, unstructured
from controller_runtime.client import LiveClient
from controller_runtime.client.interfaces import Writer
from controller_runtime.envtest.eventually import eventually
from controller_runtime.envtest.manifests import Manifest, apply_manifests
from controller_runtime.rest import NoKindMatchError

CRD: Final = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
ANY_FIELDS: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object that may contain any fields."""


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


def open_crd(
    gvk: GVK,
    plural: str = "",
    *,
    namespaced: bool = True,
    schema: Mapping[str, JSON] | None = None,
    **version: JSON,
) -> dict[str, JSON]:
    """Return a CustomResourceDefinition for tests that need a kind, but not the project that defines it.

    Args:
        gvk: the kind, with the only version that is served.
        plural: the name in paths; without one, the kind in lower case and an ``s``.
        namespaced: False for a cluster-scoped kind.
        schema: the ``openAPIV3Schema``; without one, objects may contain any fields.
        version: further fields of the version, such as ``subresources={"status": {}}``.
    """
    singular = gvk.kind.lower()
    plural = plural or f"{singular}s"
    # A group in k8s.io requires the annotation.
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"}
    names = {"kind": gvk.kind, "listKind": f"{gvk.kind}List", "plural": plural, "singular": singular}
    served = {"name": gvk.version, "served": True, "storage": True, **version}
    served["schema"] = {"openAPIV3Schema": dict(schema or ANY_FIELDS)}
    return {
        "apiVersion": CRD.gvk.api_version,
        "kind": CRD.gvk.kind,
        "metadata": {"name": f"{plural}.{gvk.group}", "annotations": approved},
        "spec": {
            "group": gvk.group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": names,
            "versions": [served],
        },
    }


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
