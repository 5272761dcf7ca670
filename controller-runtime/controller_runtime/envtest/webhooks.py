# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations for a server that runs beside the API server, not behind a Service."""

from __future__ import annotations

import base64
import copy
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from controller_runtime.client import Writer
from controller_runtime.envtest.files import write_private
from controller_runtime.envtest.manifests import Manifest, apply_manifests
from controller_runtime.envtest.ports import free_ports
from controller_runtime.webhook import SelfSigned
from controller_runtime.webhook.conversion import PATH

KINDS: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})
_HOST: Final = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookServing:
    """Where the API server calls webhooks: what a manager's ``webhook_host``, ``…_port`` and ``…_cert_dir`` shall be."""

    host: str
    port: int
    cert_dir: Path
    """Holds ``tls.crt`` and ``tls.key``."""

    @property
    def url(self) -> str:
        """The server's address, to which hooks add their paths."""
        return f"https://{self.host}:{self.port}"


def prepare_serving(cert_dir: Path) -> WebhookServing:
    """Pick a free port and write a new certificate for it into ``cert_dir``."""
    certificate, key = SelfSigned("localhost", _HOST).pair()
    write_private(cert_dir / "tls.crt", certificate)
    write_private(cert_dir / "tls.key", key)
    (port,) = free_ports(1)
    return WebhookServing(_HOST, port, cert_dir)


async def install_webhooks(
    writer: Writer, manifests: Iterable[Manifest], serving: WebhookServing, *, prefix: str = ""
) -> list[str]:
    """Apply the webhook configurations among ``manifests``, pointed at ``serving``; return their names.

    ``prefix`` goes before each name: generated configurations are all called alike.
    """
    authority = (serving.cert_dir / "tls.crt").read_bytes()
    pointed = [
        point_at(each, serving.url, authority, name=prefix + str(each["metadata"]["name"]))
        for each in manifests
        if each.get("kind") in KINDS
    ]
    await apply_manifests(writer, pointed)
    return [str(each["metadata"]["name"]) for each in pointed]


def select_namespaces(manifest: Manifest, namespaces: Sequence[str]) -> dict[str, Any]:
    """Return a webhook configuration that asks only about objects in ``namespaces``, so that tests keep apart."""
    changed = copy.deepcopy(dict(manifest))
    requirement = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    for hook in changed.get("webhooks", []):
        hook.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(requirement)
    return changed


def point_at(manifest: Manifest, url: str, authority: bytes, *, name: str = "") -> dict[str, Any]:
    """Return a webhook configuration whose every hook is called at ``url`` plus the path it names.

    ``authority`` is the certificate that the server's is signed by; ``name`` renames the configuration, for
    generated ones are all called alike.
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


def point_conversion_at(crd: Manifest, serving: WebhookServing) -> dict[str, Any]:
    """Return a CRD that converts its versions at ``serving``, by the path that it names or Go's ``/convert``.

    One without ``strategy: Webhook`` gets it.
    """
    changed = copy.deepcopy(dict(crd))
    conversion = changed["spec"].get("conversion") or {}
    hook = conversion.get("webhook") or {}
    path = ((hook.get("clientConfig") or {}).get("service") or {}).get("path") or PATH
    authority = (serving.cert_dir / "tls.crt").read_bytes()
    changed["spec"]["preserveUnknownFields"] = False  # conversion by webhooks requires it
    changed["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": hook.get("conversionReviewVersions") or ["v1"],
            "clientConfig": {
                "url": serving.url + path,
                "caBundle": base64.b64encode(authority).decode(),
            },
        },
    }
    return changed


def converts_by_webhook(crd: Manifest) -> bool:
    """Return True if a CRD has ``strategy: Webhook``."""
    return (crd.get("spec", {}).get("conversion") or {}).get("strategy") == "Webhook"
