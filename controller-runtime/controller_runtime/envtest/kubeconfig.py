# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""kubeconfig documents."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from controller_runtime.envtest.pki import KeyPair

if TYPE_CHECKING:
    from controller_runtime.apis.machinery.base import JSON


def kubeconfig(
    server: str,
    authority: bytes = b"",
    *,
    user: str,
    client: KeyPair | None = None,
    token: str = "",
    cluster: str = "local",
    namespace: str = "default",
) -> dict[str, JSON]:
    """Return a self-contained kubeconfig for ``user`` at ``server``, with a client certificate, a token or neither.

    ``authority`` is not needed for plain HTTP.
    """
    identity: dict[str, str] = {"token": token} if token else {}
    if client is not None:
        identity["client-certificate-data"] = _encode(client.certificate)
        identity["client-key-data"] = _encode(client.key)
    endpoint = {"server": server}
    if authority:
        endpoint["certificate-authority-data"] = _encode(authority)
    context = {"cluster": cluster, "user": user, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": endpoint}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": cluster, "context": context}],
        "current-context": cluster,
    }


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
