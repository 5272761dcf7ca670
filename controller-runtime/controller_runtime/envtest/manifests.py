# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Read manifests, and install CRDs and webhook configurations on an API server."""

from __future__ import annotations

import base64
import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from controller_runtime.client import LiveClient, Writer
from controller_runtime.envtest.eventually import eventually
from controller_runtime.envtest.files import write_private
from controller_runtime.envtest.ports import HOST, free_ports
from controller_runtime.machinery import GVK, JSON, Unstructured, unstructured, yaml
from controller_runtime.machinery.errors import one_line
from controller_runtime.rest import NoKindMatchError
from controller_runtime.webhook import CONVERSION_PATH, SelfSigned

FIELD_OWNER: Final = "envtest"

Manifest = Mapping[str, JSON]
CRD: Final = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))
ANY_FIELDS: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object that may contain any fields."""
WEBHOOK_KINDS: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})


def read_manifests(*sources: Path | Manifest) -> list[dict[str, JSON]]:
    """Return the objects in files and folders. A folder's ``.json``, ``.yaml`` and ``.yml`` files are read by name.

    A list (``kind: List``) is replaced by its items. If a source is already an object, it is returned unchanged.

    Raises:
        ValueError: a file does not contain manifests; the message names the file.
    """
    documents: list[dict[str, JSON]] = []
    for source in sources:
        if isinstance(source, Mapping):
            documents.append(dict(source))
            continue
        files = [source]
        if source.is_dir():
            files = sorted(path for path in source.iterdir() if path.suffix in {".json", ".yaml", ".yml"})
        for file in files:
            documents.extend(_documents(file))
    return documents


async def apply_manifests(client: Writer, objects: Iterable[Manifest], *, owner: str = FIELD_OWNER) -> None:
    """Write ``objects`` by server-side apply, in order. Calling it again is safe.

    ``kubectl apply`` stores each object in an annotation, which limits its size. This function does not.
    """
    for data in objects:
        await client.apply(Unstructured.wrap(dict(data)), field_owner=owner, force=True)


def _documents(file: Path) -> list[dict[str, JSON]]:
    try:
        text = file.read_text(encoding="utf-8")
        is_json = file.suffix == ".json"
        documents = [value for _, value in yaml.load_all(text, strict=False, is_json=is_json)]
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {one_line(error)}") from error
    flat = [item for document in documents for item in _items(document)]
    for number, document in enumerate(flat, 1):
        if not isinstance(document, dict) or not document.get("apiVersion") or not document.get("kind"):
            raise ValueError(f"{file}: document {number} has no apiVersion and kind")
    return flat


def _items(document: JSON) -> list[JSON]:
    if isinstance(document, dict) and document.get("kind") == "List":
        document = document.get("items") or []
    return list(document) if isinstance(document, list) else [document]


async def install_crds(writer: Writer, manifests: Iterable[Manifest]) -> list[str]:
    """Apply the CRDs among ``manifests`` and return their names (``crontabs.stable.example.com``).

    The CRDs may not be served yet when this returns. To wait for that, use `wait_established`.
    """
    crds = [manifest for manifest in manifests if manifest.get("kind") == "CustomResourceDefinition"]
    await apply_manifests(writer, crds)
    return [str(manifest["metadata"]["name"]) for manifest in crds]


async def wait_established(client: LiveClient, names: Iterable[str], *, timeout: float = 30) -> None:
    """Wait until the API server serves the named CRDs and lists them in discovery.

    Discovery shows a CRD some time after its condition ``Established`` is True.

    Raises:
        EventuallyError: a CRD is not served within ``timeout`` seconds. The message contains the CRD's name and
            conditions.
    """
    for name in names:

        async def served(name: str = name) -> bool:
            crd = await client.get(CRD, ("", name))
            conditions = {
                condition["type"]: condition["status"]
                for condition in crd.nested("status", "conditions") or ()
            }
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
    """Return a CustomResourceDefinition of a kind that is needed without the project that defines the kind.

    Args:
        gvk: the kind; the CRD has only this version.
        plural: the name of the resource; if empty, the kind in lower case plus ``s``.
        namespaced: False for a cluster-scoped kind.
        schema: the ``openAPIV3Schema``; if None, objects may contain any fields.
        version: other fields of the version in the CRD, such as ``subresources={"status": {}}``.
    """
    singular = gvk.kind.lower()
    plural = plural or f"{singular}s"
    metadata: dict[str, JSON] = {"name": f"{plural}.{gvk.group}"}
    if gvk.group.endswith("k8s.io"):  # the API server requires the annotation
        metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, for tests"}
    names = {"kind": gvk.kind, "listKind": f"{gvk.kind}List", "plural": plural, "singular": singular}
    served = {"name": gvk.version, "served": True, "storage": True, **version}
    served["schema"] = {"openAPIV3Schema": dict(schema or ANY_FIELDS)}
    return {
        "apiVersion": CRD.gvk.api_version,
        "kind": CRD.gvk.kind,
        "metadata": metadata,
        "spec": {
            "group": gvk.group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": names,
            "versions": [served],
        },
    }


def kind_of(manifest: Manifest) -> tuple[str, str]:
    """Return the group and kind that a CRD defines, or empty strings if ``manifest`` is not a CRD."""
    spec = manifest.get("spec") if manifest.get("kind") == "CustomResourceDefinition" else None
    return (spec["group"], spec["names"]["kind"]) if spec else ("", "")


def _kinds(crd: Unstructured) -> list[GVK]:
    group, kind = crd.nested("spec", "group"), crd.nested("spec", "names", "kind")
    return [
        GVK(group, version["name"], kind)
        for version in crd.nested("spec", "versions") or ()
        if version["served"]
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookServing:
    """Values for a manager's ``webhook_host``, ``webhook_port`` and ``webhook_cert_dir``."""

    host: str
    port: int
    cert_dir: Path
    """The directory of ``tls.crt`` and ``tls.key``."""

    @property
    def url(self) -> str:
        """The server's base URL, to which webhooks append their paths."""
        return f"https://{self.host}:{self.port}"

    @property
    def certificate(self) -> bytes:
        """The server's self-signed certificate, in PEM format."""
        return (self.cert_dir / "tls.crt").read_bytes()


def prepare_serving(cert_dir: Path) -> WebhookServing:
    """Choose a free port and write a new certificate into ``cert_dir``."""
    certificate, key = SelfSigned("localhost", HOST).pair()
    write_private(cert_dir / "tls.crt", certificate)
    write_private(cert_dir / "tls.key", key)
    (port,) = free_ports(1)
    return WebhookServing(HOST, port, cert_dir)


def select_namespaces(manifest: Manifest, namespaces: Sequence[str]) -> dict[str, JSON]:
    """Return a webhook configuration that ignores objects in other namespaces than ``namespaces``, to isolate tests.

    Other Namespace objects are ignored, too. For all other cluster-scoped kinds, the webhooks are still called.
    """
    changed = copy.deepcopy(dict(manifest))
    requirement = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    for hook in changed.get("webhooks", []):
        hook.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(requirement)
    return changed


def point_at(manifest: Manifest, url: str, authority: bytes, *, name: str = "") -> dict[str, JSON]:
    """Return a webhook configuration whose webhooks are called at ``url``, each at its own path.

    ``authority`` is the CA certificate of the server. ``name`` replaces the configuration's name, because generated
    configurations all have the same names.
    """
    changed = copy.deepcopy(dict(manifest))
    if name:
        changed["metadata"]["name"] = name
    for hook in changed.get("webhooks", []):
        service = hook["clientConfig"].get("service") or {}
        hook["clientConfig"] = {
            "url": url.rstrip("/") + (service.get("path") or "/"),
            "caBundle": base64.b64encode(authority).decode(),
        }
    return changed


def point_conversion_at(crd: Manifest, serving: WebhookServing) -> dict[str, JSON]:
    """Return a CRD whose versions are converted by the webhook server at ``serving``.

    The path is the one in ``crd``, or ``/convert`` if it has none. The conversion strategy is always set to
    ``Webhook``.
    """
    changed = copy.deepcopy(dict(crd))
    conversion = changed["spec"].get("conversion") or {}
    hook = conversion.get("webhook") or {}
    path = ((hook.get("clientConfig") or {}).get("service") or {}).get("path") or CONVERSION_PATH
    changed["spec"]["preserveUnknownFields"] = False  # required for conversion by webhooks
    changed["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": hook.get("conversionReviewVersions") or ["v1"],
            "clientConfig": {
                "url": serving.url + path,
                "caBundle": base64.b64encode(serving.certificate).decode(),
            },
        },
    }
    return changed
