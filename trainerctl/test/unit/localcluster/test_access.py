# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The access of a local cluster's components."""

from pathlib import Path
from typing import Any

import yaml
from controller_runtime.apis.authentication.v1 import TokenRequest
from controller_runtime.client import interceptor
from controller_runtime.envtest import CERTIFICATE_LIFETIME
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object

from trainerctl.localcluster.access import write_kubeconfig


async def test_a_token_is_valid_as_long_as_the_cluster_s_certificates(tmp_path: Path) -> None:
    requested: list[dict[str, Any]] = []

    async def answer(client: Any, name: str, owner: Object, body: Object) -> Object:
        requested.append(body.to_dict())
        return TokenRequest.from_dict({"status": {"token": "secret"}})

    client: Any = interceptor.wrap(FakeClient(), interceptor.Funcs(subresource_create=answer))
    path = await write_kubeconfig(
        client, tmp_path / "m.kubeconfig", "https://127.0.0.1:1", b"ca", namespace="team", name="manager"
    )
    assert requested[0]["spec"]["expirationSeconds"] == CERTIFICATE_LIFETIME.total_seconds()
    assert yaml.safe_load(path.read_bytes())["users"][0]["user"]["token"] == "secret"
