# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's least privilege, by the API server's audit log: an owner of every kind that its role names."""

from typing import Any, Final

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured

from hack import rbac
from pkg.apis.kai.v2alpha2 import PodGroup
from testkit import pod_owners

pytestmark = pytest.mark.integration

PRIORITY: Final = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))
LIVE: Final = {("scheduling.run.ai", "podgroups", "get")}
"""Requested only after a concurrent write to the same group."""
GANGS: Final = {
    ("scheduling.k8s.io", resource, verb)
    for resource in ("podgroups", "workloads")
    for verb in pod_owners.READ
}
"""Requested only for pods that name a gang; the API server keeps the pod's field behind a feature gate that is off."""

KARTAS: Final = {("run.ai", "kartas", "list")}
"""Requested only if the kind is served."""


@pytest.mark.timeout(180)
async def test_every_grant_is_asked_for_and_nothing_else(
    run_under: Any, audited: Environment, live_client: LiveClient, namespace: str
) -> None:
    kinds = pod_owners.owners()
    await audited.install_crds(*pod_owners.crds())
    name = f"p-{namespace}"[:60].strip("-")
    await live_client.create(PRIORITY.from_dict({"metadata": {"name": name}, "value": 1}))
    defaults = {"metadata": {"name": "defaults", "namespace": namespace}, "data": {"types": "[]"}}
    await live_client.create(ConfigMap.from_dict(defaults))
    async with run_under(grouper=True) as run:
        pods = [await pod_owners.grouped(live_client, namespace, key, gvk) for key, gvk in kinds.items()]
        await pod_owners.grouped(live_client, namespace, ("", "pods"), Pod.gvk)

        async def marked() -> Pod | None:
            (pod,) = [each for each in pods if each.name == "jobs-batch"]
            found = await live_client.get(Pod, pod.key)
            return found if "pod-group-name" in found.annotations else None

        # A group that another client changed is restored with the next event of a pod.
        pod = await eventually(marked, timeout=30, reason="the Job's pod has its group")
        group = await live_client.get(PodGroup, (namespace, pod.annotations["pod-group-name"]))
        await live_client.patch(group, raw_patch(MERGE, b'{"spec":{"minMember":7}}'))
        await live_client.patch(pod, raw_patch(MERGE, b'{"metadata":{"labels":{"touched":"yes"}}}'))

        def all_asked() -> bool:
            missing = rbac.collected(rbac.Part.POD_GROUPER) - LIVE - GANGS - KARTAS - run.asked().granted
            assert not missing
            return True

        await eventually(all_asked, timeout=60, reason="every grant is asked for")
        assert not run.asked().refused
