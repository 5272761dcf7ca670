# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The operator of the page for users of kopf runs on a real API server, with its webhook."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import crd
from ctrl_testkit.buckets import Storage, imported_page

pytestmark = [pytest.mark.integration, pytest.mark.slow]
WEBHOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "buckets"},
    "webhooks": [
        {
            "name": "buckets.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {
                "service": {
                    "namespace": "default",
                    "name": "buckets",
                    "path": "/validate-example-com-v1-bucket",
                }
            },
            "rules": [
                {
                    "apiGroups": ["example.com"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["buckets"],
                }
            ],
        }
    ],
}


async def test_buckets_are_provisioned_repaired_limited_and_deleted(
    tmp_path: Path,
    control_plane: Environment,
    rest_config: ctrl.Config,
    live_client: LiveClient,
    namespace: str,
) -> None:
    with imported_page(tmp_path) as page:
        kind = page.Bucket
        await control_plane.install_crds(crd.custom_resource_definition(kind))
        serving = await control_plane.install_webhooks(
            WEBHOOKS, prefix=f"{namespace}-", namespaces=[namespace]
        )
        options = ctrl.Options(
            metrics_bind_address="0",
            webhook_host=serving.host,
            webhook_port=serving.port,
            webhook_cert_dir=str(serving.cert_dir),
        )
        mgr, storage = ctrl.Manager(rest_config, options), Storage()
        await page.setup(mgr, storage)

        async def create(name: str) -> Any:
            metadata = ctrl.ObjectMeta(namespace=namespace, name=name)
            spec = page.BucketSpec(team=namespace, region="north", size=5)
            return await live_client.create(kind(metadata=metadata, spec=spec))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mgr.start)
            await mgr.elected.wait()
            made = await create("one")
            uid = made.metadata.uid

            async def measured() -> bool:
                return bool((await live_client.get(kind, made.key)).status.used == len(uid))

            async def reported() -> bool:
                events = await live_client.list(Event, namespace=namespace)
                return [each.message for each in events if each.reason == "Provisioned"][:1] == [
                    "The bucket has 5 GiB"
                ]

            await eventually(measured, reason="the status has the usage")
            await eventually(reported, reason="the event is recorded")
            storage.lose(uid, made.key)
            await eventually(lambda: storage.buckets == {uid: 5}, reason="the bucket is repaired")

            await create("two")
            number = 0

            async def refused() -> ctrl.ForbiddenError | None:
                nonlocal number
                number += 1
                try:
                    await create(f"more-{number}")
                except ctrl.ForbiddenError as error:
                    return error
                return None

            refusal = await eventually(refused, reason="another bucket is refused")
            assert "a team has at most 3 buckets" in str(refusal)
            await live_client.delete_all_of(kind, namespace=namespace)

            async def gone() -> bool:
                return await live_client.list(kind, namespace=namespace) == []

            await eventually(gone, reason="every bucket is deleted")
            assert storage.buckets == {}
            mgr.stop()
        storage.close()
