# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations for a server that runs beside the API server, not behind a Service."""

from __future__ import annotations

import base64
import copy
from typing import Any

from pkg.ctrl.envtest.manifests import Manifest


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
