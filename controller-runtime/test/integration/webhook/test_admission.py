# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server calls our webhook."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from controller_runtime import webhook
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import field
from controller_runtime.machinery.errors import ForbiddenError, StatusError

pytestmark = pytest.mark.integration
PATH = "/validate--v1-configmap"


class NoSpoons(webhook.CustomValidator[ConfigMap]):
    async def validate_create(self, obj: ConfigMap) -> list[str]:
        errors = field.ErrorList()
        if "spoon" in (obj.data or {}):
            errors.append(field.forbidden(field.Path("data").key("spoon"), "there is no spoon"))
        if (aggregate := errors.to_aggregate()) is not None:
            raise aggregate
        if "bug" in (obj.data or {}):
            raise RuntimeError("oops")
        return ["mind the gap"]

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self.validate_create(new)

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


@asynccontextmanager
async def hooked(live_client: LiveClient, namespace: str, tmp_path: Path) -> AsyncIterator[None]:
    """Serve the validator, and register it for the ConfigMaps of the namespace."""
    cert, key = webhook.SelfSigned("localhost", "127.0.0.1").pair()
    (tmp_path / "tls.crt").write_bytes(cert)
    (tmp_path / "tls.key").write_bytes(key)
    server = webhook.Server("127.0.0.1", 0, tmp_path)
    server.register(PATH, webhook.ValidatorHandler(ConfigMap, NoSpoons()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        configuration = ValidatingWebhookConfiguration.from_dict({
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": "configmaps.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{server.port}{PATH}",
                    "caBundle": base64.b64encode(cert).decode(),
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        })  # fmt: skip
        await live_client.create(configuration)
        yield
        await live_client.delete(configuration)
        tasks.cancel_scope.cancel()


async def refusal(client: LiveClient, namespace: str, **data: str) -> StatusError | None:
    config_map = ConfigMap.from_dict(
        {"metadata": {"namespace": namespace, "generateName": "x-"}, "data": data}
    )
    try:
        await client.create(config_map)
    except StatusError as error:
        return error
    return None


async def test_the_users_see_the_validators_verdict(
    live_client: LiveClient, namespace: str, tmp_path: Path
) -> None:
    async def refused() -> StatusError | None:
        return await refusal(live_client, namespace, spoon="1")

    async with hooked(live_client, namespace, tmp_path):
        error = await eventually(refused, reason="the API server calls the webhook")
        fork = await refusal(live_client, namespace, fork="1")
        broken = await refusal(live_client, namespace, bug="1")
    assert isinstance(error, ForbiddenError)
    assert error.message == (
        'admission webhook "configmaps.example.com" denied the request: '
        "data[spoon]: Forbidden: there is no spoon"
    )
    assert fork is None
    assert broken is not None
    assert (broken.code, "panic: RuntimeError: oops [recovered]" in broken.message) == (500, True)
