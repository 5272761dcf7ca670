# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of KAI-Scheduler that name a gang of Kubernetes: one PodGroup of KAI for each gang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.crd import custom_resource_definition

from pkg import shipped
from pkg.apis.kai.v2alpha2 import PodGroup

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


@pytest.fixture
async def grouping(trainer_control_plane: Environment, live_client: LiveClient) -> AsyncIterator[None]:
    """Serve KAI's PodGroups, and grant the manager under test the rights of the pod grouper."""
    await trainer_control_plane.install_crds(custom_resource_definition(PodGroup))
    role, binding = shipped.manifests("podgrouper")
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "trainer-under-test"}
    await apply_manifests(live_client, [role, {**binding, "subjects": [user]}], owner="test")
    yield
    for pod in await live_client.list(Pod):
        await live_client.delete(pod, grace_period_seconds=0)


async def create_gang(client: LiveClient, namespace: str, release: Any) -> None:
    policy = {"gang": {"minCount": 3}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if release.kind.gvk.kind == "Workload":
        spec = {"podGroups": [{"name": "gang", "policy": policy}]}
    metadata = {"name": "gang", "namespace": namespace}
    await client.create(release.kind.from_dict({"metadata": metadata, "spec": spec}))


async def create_pod(client: LiveClient, namespace: str, name: str, **spec: Any) -> None:
    labels = {"kai.scheduler/queue": "team-a"}
    containers = [{"name": "c", "image": "busybox"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"schedulerName": "kai-scheduler", "containers": containers, **spec},
    }
    await client.create(Unstructured.wrap(pod))


@pytest.mark.usefixtures("grouping")
async def test_the_pods_of_a_gang_are_one_group_of_its_size_and_another_pod_is_not_in_it(
    run_manager: RunManager, live_client: LiveClient, namespace: str, release: Any
) -> None:
    await create_gang(live_client, namespace, release)
    for name in ("one", "two", "three"):
        await create_pod(live_client, namespace, name, **release.member)
    await create_pod(live_client, namespace, "alone")

    async def grouped() -> dict[str, set[str]] | None:
        found = defaultdict(set)
        for pod in await live_client.list(Pod, namespace=namespace):
            found[pod.annotations.get("pod-group-name", "")].add(pod.name)
        return None if "" in found else found

    async with run_manager("--controllers=podgrouper"):
        found = await eventually(grouped, timeout=60, reason="every pod is grouped")

    assert sorted(map(sorted, found.values())) == [["alone"], ["one", "three", "two"]]
    groups = {each.name: each for each in await live_client.list(PodGroup, namespace=namespace)}
    assert groups.keys() == found.keys()
    (of_gang,) = [each for each in groups.values() if len(found[each.name]) == 3]
    assert (of_gang.spec.min_member, of_gang.spec.queue) == (3, "team-a")
    owners = [(each.kind, each.name) for each in of_gang.metadata.owner_references or ()]
    assert owners == [(release.kind.gvk.kind, "gang")]
