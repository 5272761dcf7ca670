# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Service accounts and their tokens. Components that are not part of Kubernetes use them to call the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller_runtime.apis.core.v1 import ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest import CERTIFICATE_LIFETIME, kubeconfig, write_private
from controller_runtime.machinery import GVK, JSON, unstructured, yaml

TOKEN_REQUEST: Final = unstructured(GVK("authentication.k8s.io", "v1", "TokenRequest"))
TOKEN_SECONDS: Final = int(CERTIFICATE_LIFETIME.total_seconds())
"""How long a service account's token is valid, in seconds. The certificates of the cluster are valid for the same time.
"""


def service_account(namespace: str, name: str) -> dict[str, JSON]:
    """Return a ServiceAccount."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def role_binding(role: str, subject: dict[str, str]) -> dict[str, JSON]:
    """Return the ClusterRoleBinding that gives ``role`` to ``subject``. The binding has the name of the role."""
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


async def write_kubeconfig(
    client: LiveClient, path: Path, server: str, authority: bytes, *, namespace: str, name: str
) -> Path:
    """Write a kubeconfig for ``server`` with a new token of a service account; return its path."""
    account = ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace))
    request = TOKEN_REQUEST.from_dict({"spec": {"expirationSeconds": TOKEN_SECONDS}})
    answer = await client.subresource("token").create(account, request)
    token = str(answer.nested("status", "token"))
    data = kubeconfig(server, authority, user=name, token=token, namespace=namespace)
    return write_private(path, yaml.dump(data))
