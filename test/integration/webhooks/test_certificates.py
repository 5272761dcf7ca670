# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Managed certificates under the shipped rights, with a real API server that verifies them."""

import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from controller_runtime import certrotation, webhook
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.core.v1 import Event, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually
from controller_runtime.machinery.errors import StatusError
from controller_runtime.recorder import Broadcaster
from controller_runtime.rest import Config
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding

from hack import rbac
from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from pkg.util import cert
from pkg.webhooks import trainingruntime_webhook
from testkit.builders import replicated, written_runtime

pytestmark = pytest.mark.integration
USER = "trainer-under-test"
PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"


@pytest.fixture
async def granted(live_client: LiveClient, namespace: str) -> None:
    """Grant the shipped right to the webhook configuration, for one with this test's name."""
    grants = {grant for grant in rbac.resource_names() if grant[1] == "validatingwebhookconfigurations"}
    assert grants
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": namespace},
        "rules": rbac.rules(grants, dict.fromkeys(grants, (namespace,))),
    }
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    await apply_manifests(live_client, [role, role_binding(namespace, user)], owner="test")


@pytest.fixture
def replicas(
    trainer_control_plane: Environment,
    trainer_config: Config,
    live_client: LiveClient,
    namespace: str,
    granted: None,
) -> Callable[..., Any]:
    """Return a function that runs replicas; the API server calls the webhook of each for this namespace."""
    del trainer_control_plane, granted
    options = cert.options(
        "certs",
        "manager",
        namespace=namespace,
        validating=namespace,
        mutating=namespace,
        propagation_delay=0.5,
    )
    connect = functools.partial(certrotation.connect, trainer_config, options)

    @asynccontextmanager
    async def run(count: int) -> AsyncIterator[list[cert.Certificates]]:
        broadcaster = Broadcaster(live_client)
        servers, made = [], []
        for _ in range(count):
            events = broadcaster.recorder_for(cert.EVENT_SOURCE)
            certificates = cert.Certificates(options, connect, events, metrics=cert.METRICS)
            server = webhook.Server("127.0.0.1", 0)
            server.use(certificates)
            validator = trainingruntime_webhook.TrainingRuntimeWebhook()
            server.register(PATH, webhook.ValidatorHandler(TrainingRuntime, validator))
            servers.append(server)
            made.append(certificates)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(broadcaster.start)
            for server in servers:
                tasks.start_soon(server.start)
                await server.ready()
            (manifest,) = [
                each
                for each in manifests.trainer_webhooks("https://127.0.0.1", b"")
                if each["kind"] == ValidatingWebhookConfiguration.gvk.kind
            ]
            (shipped,) = [hook for hook in manifest["webhooks"] if hook["clientConfig"]["url"].endswith(PATH)]
            manifest["metadata"]["name"] = namespace
            manifest["webhooks"] = [
                {
                    **shipped,
                    "name": f"r{number}.{shipped['name']}",
                    "clientConfig": {"url": f"https://127.0.0.1:{server.port}{PATH}"},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                }
                for number, server in enumerate(servers)
            ]
            hooks = await live_client.create(ValidatingWebhookConfiguration.from_dict(manifest))
            for certificates in made:
                tasks.start_soon(certificates.start)
            for certificates in made:
                await certificates.served()
            yield made
            await live_client.delete(hooks)
            tasks.cancel_scope.cancel()

    return run


async def test_replicas_share_an_authority_that_the_api_server_trusts_and_rotate_it_without_a_gap(
    replicas: Callable[..., Any], live_client: LiveClient, namespace: str
) -> None:
    async def refused() -> bool:
        """Return True if the webhook denies; a failed call is answered with 500 instead."""
        try:
            await live_client.create(replicated(written_runtime(namespace), 2), dry_run=True)
        except StatusError as error:
            return "always must be 1" in error.message
        return False

    async with replicas(3):
        await eventually(refused, timeout=5, reason="the API server asks all three soon after they are ready")
        first = await live_client.get(Secret, (namespace, "certs"))
        authorities = [certrotation.Material.from_data(first.data or {}).ca_crt]
        assert authorities[0].count(b"BEGIN CERTIFICATE") == 1
        for _ in range(3):
            await live_client.delete(first)
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                assert await refused()
                await live_client.create(written_runtime(namespace), dry_run=True)

            async def restored() -> Secret | None:
                found = await live_client.get(Secret, (namespace, "certs"))
                return found if certrotation.Material.from_data(found.data or {}).ca_crt else None

            found = await eventually(restored, timeout=30, reason="the Secret is restored")
            authorities.append(certrotation.Material.from_data(found.data or {}).ca_crt)
        assert len(set(authorities)) == 4
        await live_client.update(Secret(metadata=found.metadata, data={"tls.crt": "bm9uc2Vuc2U="}))

        async def reported() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return any(event.reason == "WebhookCertificatesRepaired" for event in events)

        await eventually(reported, reason="an event reports the repair")
        assert await refused()
