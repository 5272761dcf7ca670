# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example with a validating webhook, on a real API server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pkg.apis.core.v1 import ConfigMap, Event
from pkg.apis.machinery.errors import ForbiddenError, NotFoundError
from pkg.apis.machinery.object import Unstructured
from pkg.ctrl import webhook
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import eventually, point_at, read_manifests
from pkg.ctrl.envtest.ports import free_ports

pytestmark = pytest.mark.integration
MANIFEST = Path(__file__).parents[3] / "examples/config/expiring_configmaps_webhook.yaml"


def config_map(namespace: str, name: str, ttl: str) -> ConfigMap:
    metadata = {"namespace": namespace, "name": name, "annotations": {"example.com/ttl": ttl}}
    return ConfigMap.from_dict({"metadata": metadata})


async def test_a_config_map_expires_and_a_bad_ttl_is_refused(
    live_client: LiveClient, namespace: str, tmp_path: Path, start_example: Callable[..., Any]
) -> None:
    certificate, key = webhook.SelfSigned("localhost", "127.0.0.1").pair()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    (port,) = free_ports(1)
    (manifest,) = read_manifests(MANIFEST)
    hooks = point_at(manifest, f"https://127.0.0.1:{port}", certificate, name=namespace)
    # Other tests run against the same API server: they are left in peace.
    hooks["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    start_example("expiring_configmaps", f"--port={port}", f"--cert-dir={tmp_path}")
    hooks_object = Unstructured.wrap(hooks)
    await live_client.create(hooks_object)
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
        error = await eventually(refusal, timeout=20, reason="the webhook is not asked")
        assert error.message == (
            'admission webhook "expiring-configmaps.example.com" denied the request: '
            'metadata.annotations[example.com/ttl]: Invalid value: "soon": must be a number of seconds'
        )
        await live_client.create(config_map(namespace, "brief", "2"))
        await live_client.create(config_map(namespace, "lasting", "3600"))
        await live_client.get(ConfigMap, (namespace, "brief"))
        await eventually(lambda: gone(live_client, namespace, "brief"), reason="it did not expire")
        assert not await gone(live_client, namespace, "lasting")

        async def told() -> list[Event]:
            events = await live_client.list(Event, namespace=namespace)
            return [event for event in events if event.reason == "Expired"]

        (event,) = await eventually(told, reason="nobody is told")
        assert event.message == "its 2 seconds are over"
        assert event.involved_object is not None
        assert event.involved_object.name == "brief"
    finally:
        await live_client.delete(hooks_object)


async def gone(client: LiveClient, namespace: str, name: str) -> bool:
    try:
        await client.get(ConfigMap, (namespace, name))
    except NotFoundError:
        return True
    return False
