# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager makes the certificates of its webhooks, and a real API server trusts them."""

import socket
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime import certrotation, webhook
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition
from controller_runtime.apis.core.v1 import ConfigMap, Event, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually, open_crd
from controller_runtime.machinery import field

pytestmark = pytest.mark.integration
PATH = "/validate--v1-configmap"


class NoSpoons(webhook.CustomValidator[ConfigMap]):
    async def validate_create(self, obj: ConfigMap) -> list[str]:
        if "spoon" in (obj.data or {}):
            raise field.forbidden(field.Path("data").key("spoon"), "there is no spoon")
        return []

    async def validate_update(self, old: ConfigMap, new: ConfigMap) -> list[str]:
        return await self.validate_create(new)

    async def validate_delete(self, obj: ConfigMap) -> list[str]:
        return []


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def validating(namespace: str, port: int) -> ValidatingWebhookConfiguration:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    hook = {
        "name": "configmaps.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": f"https://127.0.0.1:{port}{PATH}"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [rule],
    }
    return ValidatingWebhookConfiguration.from_dict({"metadata": {"name": namespace}, "webhooks": [hook]})


def converting(port: int) -> CustomResourceDefinition:
    gvk = ctrl.GVK("certrotation.example.com", "v1", "Timer")
    definition = open_crd(gvk, "timers", namespaced=True, schema={"type": "object"})
    called = {"url": f"https://127.0.0.1:{port}{webhook.CONVERSION_PATH}"}
    definition["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": called, "conversionReviewVersions": ["v1"]},
    }
    return CustomResourceDefinition.from_dict(definition)


async def test_the_webhooks_of_a_manager_are_called_with_its_own_certificates(
    rest_config: ctrl.Config, live_client: LiveClient, namespace: str
) -> None:
    port = free_port()
    configuration = await live_client.create(validating(namespace, port))
    crd = await live_client.create(converting(port))
    mgr = ctrl.Manager(
        rest_config,
        ctrl.Options(
            metrics_bind_address="0",
            health_probe_bind_address="0",
            webhook_host="127.0.0.1",
            webhook_port=port,
        ),
    )
    options = certrotation.Options(
        namespace=namespace,
        secret="certs",
        service="manager",
        validating=(namespace,),
        conversions=(crd.name,),
        propagation_delay=0.5,
    )

    def register() -> None:
        ctrl.new_webhook_managed_by(mgr, ConfigMap).with_validator(NoSpoons()).complete()

    certrotation.add_to_manager(mgr, options, register)

    async def refused() -> bool:
        metadata = ctrl.ObjectMeta(namespace=namespace, name="c")
        try:
            await live_client.create(ConfigMap(metadata=metadata, data={"spoon": "1"}), dry_run=True)
        except ctrl.StatusError as error:
            return "there is no spoon" in error.message
        return False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        await eventually(refused, timeout=20, reason="the API server calls the webhook")
        secret = await live_client.get(Secret, (namespace, "certs"))
        authority = (secret.data or {})["ca.crt"]

        async def converted() -> bool:
            found: Any = await live_client.get(CustomResourceDefinition, crd.key)
            called = found.spec.conversion["webhook"]["clientConfig"]
            return bool(called.get("caBundle") == authority and called["url"].startswith("https://127.0.0.1"))

        await eventually(converted, timeout=20, reason="the conversion of the CRD trusts the authority")

        await live_client.delete(secret)

        async def rotated() -> bool:
            found = await live_client.get(Secret, (namespace, "certs"))
            return (found.data or {})["ca.crt"] != authority

        await eventually(rotated, timeout=20, reason="a deleted Secret is made again")
        assert await refused()

        async def told() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return {"WebhookCertificatesCreated"} <= {event.reason for event in events}

        await eventually(told, timeout=20, reason="an event reports the new certificates")
        mgr.stop()
    await live_client.delete(configuration)
    await live_client.delete(crd)
