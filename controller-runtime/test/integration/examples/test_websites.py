# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example over unstructured kinds, on a real API server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, Unstructured, unstructured

pytestmark = [pytest.mark.integration, pytest.mark.slow]
CRD = Path(__file__).parents[3] / "examples/config/websites_crd.yaml"
WEBSITE = unstructured(GVK("example.com", "v1", "Website"))
DEPLOYMENT = unstructured(GVK("apps", "v1", "Deployment"))


async def test_a_website_becomes_a_deployment_and_counts_its_replicas(
    control_plane: Environment, live_client: LiveClient, namespace: str, start_example: Callable[..., Any]
) -> None:
    key = (namespace, "blog")

    async def deployment(image: str) -> Unstructured | None:
        found = await live_client.get(DEPLOYMENT, key)
        containers: Any = found.nested("spec", "template", "spec", "containers")
        return found if containers[0]["image"] == image else None

    async def ready(count: int) -> bool:
        found = await live_client.get(WEBSITE, key)
        return bool(found.nested("status") == {"readyReplicas": count})

    await control_plane.install_crds(CRD)
    start_example("websites")
    site = WEBSITE.from_dict(
        {"metadata": {"namespace": namespace, "name": "blog"}, "spec": {"image": "web:1", "replicas": 2}}
    )
    site = await live_client.create(site)
    made = await eventually(lambda: deployment("web:1"), timeout=20, reason="the Deployment exists")
    assert made.nested("spec", "replicas") == 2
    assert [owner.uid for owner in made.metadata.owner_references or []] == [site.metadata.uid]
    await eventually(lambda: ready(0), reason="the Website has a status")

    changed = made.deep_copy()
    changed["status"] = {"replicas": 2, "readyReplicas": 2}
    await live_client.status.patch(changed, merge_from(made))
    await eventually(lambda: ready(2), reason="the Website shows its Deployment's pods")

    site = await live_client.get(WEBSITE, key)
    newer = site.deep_copy()
    newer["spec"] = {"image": "web:2", "replicas": 2}
    await live_client.patch(newer, merge_from(site))
    await eventually(lambda: deployment("web:2"), reason="the Deployment has the new image")
