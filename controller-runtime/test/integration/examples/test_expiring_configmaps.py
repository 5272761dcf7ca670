# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example with a validating webhook, on a real API server."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.machinery.meta import parse_time

pytestmark = [pytest.mark.integration, pytest.mark.slow]
HOOK_NAME = "expiring-configmaps"
HOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
MANIFEST = Path(__file__).parents[3] / "examples/config/expiring_configmaps_webhook.yaml"


def config_map(namespace: str, name: str, ttl: str) -> ConfigMap:
    metadata = {"namespace": namespace, "name": name, "annotations": {"example.com/ttl": ttl}}
    return ConfigMap.from_dict({"metadata": metadata})


async def test_a_config_map_expires_and_a_bad_ttl_is_refused(
    control_plane: Environment, live_client: LiveClient, namespace: str, start_example: Callable[..., Any]
) -> None:
    # Other tests use the same API server and must not be affected.
    serving = await control_plane.install_webhooks(MANIFEST, prefix=f"{namespace}-", namespaces=[namespace])
    start_example("expiring_configmaps", f"--port={serving.port}", f"--cert-dir={serving.cert_dir}")
    tries = 0

    async def refusal() -> ForbiddenError | None:
        nonlocal tries
        tries += 1
        try:
            await live_client.create(config_map(namespace, f"bad-{tries}", "soon"))
        except ForbiddenError as error:
            return error
        return None

    try:
        error = await eventually(refusal, timeout=20, reason="the webhook is called")
        assert error.message == (
            'admission webhook "expiring-configmaps.example.com" denied the request: '
            'metadata.annotations[example.com/ttl]: Invalid value: "soon": must be a number of seconds'
        )
        brief = await live_client.create(config_map(namespace, "brief", "2"))
        await live_client.create(config_map(namespace, "lasting", "3600"))
        await eventually(lambda: gone(live_client, namespace, "brief"), reason="the ConfigMap has expired")
        assert not await gone(live_client, namespace, "lasting")

        async def told() -> list[Event]:
            events = await live_client.list(Event, namespace=namespace)
            return [event for event in events if event.reason == "Expired"]

        (event,) = await eventually(told, reason="an event reports it")
        assert event.message == "its 2 seconds are over"
        assert event.involved_object is not None
        assert event.involved_object.name == "brief"
        made, ended = brief.metadata.creation_timestamp, event.first_timestamp
        assert parse_time(ended or "") - parse_time(made or "") >= timedelta(seconds=2)
    finally:
        await live_client.delete(HOOKS.from_dict({"metadata": {"name": f"{namespace}-{HOOK_NAME}"}}))


async def gone(client: LiveClient, namespace: str, name: str) -> bool:
    try:
        await client.get(ConfigMap, (namespace, name))
    except NotFoundError:
        return True
    return False
