# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Service accounts and their tokens: how components that are not Kubernetes' own reach the API server."""

from __future__ import annotations

from pathlib import Path

from controller_runtime.apis.authentication.v1 import TokenRequest, TokenRequestSpec
from controller_runtime.apis.core.v1 import ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Client
from controller_runtime.envtest import CERTIFICATE_LIFETIME, kubeconfig, write_private
from controller_runtime.machinery import JSON, yaml


def service_account(namespace: str, name: str) -> dict[str, JSON]:
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


async def new_token(client: Client, namespace: str, name: str, spec: TokenRequestSpec) -> str:
    """Return a new token of a service account."""
    account = ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace))
    issued = await client.subresource("token").create(account, TokenRequest(spec=spec))
    return issued.status.token or ""


async def write_kubeconfig(
    client: Client, path: Path, server: str, authority: bytes, *, namespace: str, name: str
) -> Path:
    """Write a kubeconfig for ``server`` with a new token of a service account; return its path.

    The token is valid as long as the cluster's certificates.
    """
    spec = TokenRequestSpec(expiration_seconds=int(CERTIFICATE_LIFETIME.total_seconds()))
    token = await new_token(client, namespace, name, spec)
    data = kubeconfig(server, authority, user=name, token=token, namespace=namespace)
    return write_private(path, yaml.dump(data))
