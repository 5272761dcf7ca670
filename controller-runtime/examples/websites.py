# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Websites: each gets a Deployment and reports its ready replicas.

Website has no Python class: its objects are plain JSON as sent by the API server. Deployment is a typed kind.
"""

import asyncio

import controller_runtime as ctrl
from controller_runtime import log
from controller_runtime.apis.apps.v1 import Deployment, DeploymentSpec
from controller_runtime.apis.core.v1 import Container, PodSpec, PodTemplateSpec

WEBSITE = ctrl.unstructured(ctrl.GVK("example.com", "v1", "Website"))
OWNER = "websites"


def deployment_of(site: ctrl.Unstructured) -> Deployment:
    """Return the Deployment's fields that this controller owns; other fields belong to other field managers."""
    labels = {"example.com/website": site.name}
    pod = PodSpec(containers=[Container(name="web", image=site.nested("spec", "image"))])
    wanted = Deployment(
        metadata=ctrl.ObjectMeta(namespace=site.namespace, name=site.name),
        spec=DeploymentSpec(
            replicas=site.nested("spec", "replicas"),
            selector=ctrl.LabelSelector(match_labels=labels),
            template=PodTemplateSpec(metadata=ctrl.ObjectMeta(labels=labels), spec=pod),
        ),
    )
    ctrl.set_controller_reference(site, wanted)
    return wanted


class WebsiteReconciler:
    """Applies the Deployment of a Website and updates the Website's status."""

    def __init__(self, client: ctrl.Client) -> None:
        self.client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            site = await self.client.get(WEBSITE, request)
        except ctrl.NotFoundError:
            return ctrl.Result()
        if site.metadata.deletion_timestamp:
            return ctrl.Result()
        deployment = await self.client.apply(deployment_of(site), field_owner=OWNER, force=True)
        ready = deployment.status.ready_replicas or 0
        if site.nested("status", "readyReplicas") != ready:
            old = site.deep_copy()
            site["status"] = {"readyReplicas": ready}
            await self.client.status.patch(site, ctrl.merge_from(old))
        return ctrl.Result()


async def main() -> None:
    log.configure()
    mgr = ctrl.Manager(await ctrl.load_config(), ctrl.Options(metrics_bind_address="0"))
    ctrl.new_controller_managed_by(mgr).for_(WEBSITE).owns(Deployment).complete(WebsiteReconciler(mgr.client))
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    asyncio.run(main())
