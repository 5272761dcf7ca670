# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations for a server that the API server calls by URL instead of through a Service."""

from __future__ import annotations

import base64
import copy
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from controller_runtime.apis.machinery.base import JSON
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
    """The webhook server's address: values for a manager's ``webhook_host``, ``…_port`` and ``…_cert_dir``."""

    host: str
    port: int
    cert_dir: Path
    """The directory of ``tls.crt`` and ``tls.key``."""

    @property
    def url(self) -> str:
        """The server's base URL, to which webhooks append their paths."""
        return f"https://{self.host}:{self.port}"


def prepare_serving(cert_dir: Path) -> WebhookServing:
    """Choose a free port and write a new certificate into ``cert_dir``."""
    certificate, key = SelfSigned("localhost", _HOST).pair()
    write_private(cert_dir / "tls.crt", certificate)
    write_private(cert_dir / "tls.key", key)
    (port,) = free_ports(1)
    return WebhookServing(_HOST, port, cert_dir)


async def install_webhooks(
    writer: Writer, manifests: Iterable[Manifest], serving: WebhookServing, *, prefix: str = ""
) -> list[str]:
    """Apply the webhook configurations among ``manifests``, with URLs at ``serving``; return their names.

    ``prefix`` is prepended to each name, because generated configurations share the same names.
    """
    authority = (serving.cert_dir / "tls.crt").read_bytes()
    pointed = [
        point_at(each, serving.url, authority, name=prefix + str(each["metadata"]["name"]))
        for each in manifests
        if each.get("kind") in KINDS
    ]
    await apply_manifests(writer, pointed)
    return [str(each["metadata"]["name"]) for each in pointed]


def select_namespaces(manifest: Manifest, namespaces: Sequence[str]) -> dict[str, JSON]:
    """Return a webhook configuration restricted to objects in ``namespaces``, which isolates tests."""
    changed = copy.deepcopy(dict(manifest))
    requirement = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    for hook in changed.get("webhooks", []):
        hook.setdefault("namespaceSelector", {}).setdefault("matchExpressions", []).append(requirement)
    return changed


def point_at(manifest: Manifest, url: str, authority: bytes, *, name: str = "") -> dict[str, JSON]:
    """Return a webhook configuration whose webhooks are called at ``url`` plus their own path.

    ``authority`` is the CA certificate of the server. ``name`` renames the configuration, because generated
    configurations share the same names.
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
    """Return a CRD that converts its versions at ``serving``, at its own path or the default ``/convert``.

    ``strategy: Webhook`` is set if it is missing.
    """
    changed = copy.deepcopy(dict(crd))
    conversion = changed["spec"].get("conversion") or {}
    hook = conversion.get("webhook") or {}
    path = ((hook.get("clientConfig") or {}).get("service") or {}).get("path") or PATH
    authority = (serving.cert_dir / "tls.crt").read_bytes()
    changed["spec"]["preserveUnknownFields"] = False  # required for conversion by webhooks
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
