# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Websites: kinds without a model. Each Website gets a Deployment and reports its ready replicas.

Neither kind has a Python class: both are plain JSON as sent by the API server.
"""

import asyncio
from typing import Any

import controller_runtime as ctrl
from controller_runtime import log
from controller_runtime.apis.machinery.errors import NotFoundError
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Unstructured, unstructured
from controller_runtime.client import Client, merge_from

WEBSITE = unstructured(GVK("example.com", "v1", "Website"))
DEPLOYMENT = unstructured(GVK("apps", "v1", "Deployment"))
OWNER = "websites"


def deployment_of(site: Unstructured) -> Unstructured:
    """Return the Deployment's fields that this controller owns; other fields belong to other field managers."""
    labels: dict[str, Any] = {"example.com/website": site.name}
    container: dict[str, Any] = {"name": "web", "image": site.nested("spec", "image")}
    spec: dict[str, Any] = {
        "replicas": site.nested("spec", "replicas"),
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    metadata: dict[str, Any] = {"namespace": site.namespace, "name": site.name}
    wanted = DEPLOYMENT.from_dict({"metadata": metadata, "spec": spec})
    ctrl.set_controller_reference(site, wanted)
    return wanted


class WebsiteReconciler:
    """Applies the Deployment of a Website and updates the Website's status."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            site = await self.client.get(WEBSITE, request)
        except NotFoundError:
            return ctrl.Result()
        if site.metadata.deletion_timestamp:
            return ctrl.Result()
        deployment = await self.client.apply(deployment_of(site), field_owner=OWNER, force=True)
        ready = deployment.nested("status", "readyReplicas") or 0
        if site.nested("status", "readyReplicas") != ready:
            old = site.deep_copy()
            site["status"] = {"readyReplicas": ready}
            await self.client.status.patch(site, merge_from(old))
        return ctrl.Result()


async def main() -> None:
    log.configure()
    mgr = ctrl.Manager(await ctrl.load_config(), ctrl.Options(metrics_bind_address="0"))
    ctrl.new_controller_managed_by(mgr).for_(WEBSITE).owns(DEPLOYMENT).complete(WebsiteReconciler(mgr.client))
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    asyncio.run(main())
