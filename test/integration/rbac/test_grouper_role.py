# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper's least privilege, by the API server's audit log: an owner of every kind that its role names."""

from typing import Any, Final

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.machinery.crd_schema import custom_resource_definition
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Unstructured, unstructured
from controller_runtime.client import MERGE, FakeClient, LiveClient, raw_patch
from controller_runtime.envtest import Environment, eventually, open_crd

from hack import rbac
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import ANY_VERSION, new_plugins_hub
from pkg.podgrouper.hub import BETWEEN

pytestmark = pytest.mark.integration

PRIORITY: Final = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))
READ: Final = {"get", "list", "watch"}
NO_OWNERS: Final = {"", "scheduling.k8s.io"}


def owners() -> dict[tuple[str, str], GVK]:
    """Return the kinds of owners that the role lets be read, by group and resource; where any version has a row, v1."""
    rows = [gvk for gvk in new_plugins_hub(FakeClient(), found=[]).kinds() if gvk.version != ANY_VERSION]
    any_version = [
        gvk for gvk in new_plugins_hub(FakeClient(), found=[]).kinds() if gvk.version == ANY_VERSION
    ]
    beside = [GVK(each.group, "v1", each.kind) for each in BETWEEN]
    others = [*beside, *(gvk._replace(version="v1") for gvk in any_version)]
    known = {(gvk.group, f"{gvk.kind.lower()}s"): gvk for gvk in (*others, *rows)}
    verbs: dict[tuple[str, str], set[str]] = {}
    for group, resource, verb in rbac.collected(rbac.Part.POD_GROUPER):
        verbs.setdefault((group, resource), set()).add(verb)
    named = sorted(key for key, allowed in verbs.items() if allowed == READ and key[0] not in NO_OWNERS)
    return {key: known[key] for key in named}


SERVED: Final = {"apps", "batch", "jobset.x-k8s.io", "trainer.kubeflow.org"}
"""Groups that the API server of these tests serves."""
POD: Final[dict[str, Any]] = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
TEMPLATE: Final[dict[str, Any]] = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
ALWAYS: Final[dict[str, Any]] = {
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**POD, "restartPolicy": "Always"}},
}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "Pod": POD,
    "ReplicaSet": ALWAYS,
    "Deployment": ALWAYS,
    "StatefulSet": {**ALWAYS, "serviceName": "s"},
    "Job": {"template": TEMPLATE, "suspend": True},
    "CronJob": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    "JobSet": {"replicatedJobs": [{"name": "n", "template": {"spec": {"template": TEMPLATE}}}]},
    "TrainJob": {"runtimeRef": {"name": "torch-distributed"}},
}


LIVE: Final = {("scheduling.run.ai", "podgroups", "get")}
"""Requested only after a concurrent write to the same group."""
GANGS: Final = {
    ("scheduling.k8s.io", resource, verb) for resource in ("podgroups", "workloads") for verb in READ
}
"""Requested only for pods that name a gang; the API server keeps the pod's field behind a feature gate that is off."""


async def grouped(client: LiveClient, namespace: str, key: tuple[str, str], gvk: GVK) -> Pod:
    """Make an owner of that kind and a pod of its, for the scheduler whose pods are grouped.

    A pod as owner is another scheduler's: no watch shows it.
    """
    group, resource = key
    metadata = {"name": f"{resource}-{group.partition('.')[0]}".rstrip("-"), "namespace": namespace}
    manifest = {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "metadata": {**metadata, "name": f"{metadata['name']}-owner"},
        "spec": SPECS.get(gvk.kind, {}),
    }
    owner = await client.create(Unstructured.wrap(manifest))
    reference = {"apiVersion": gvk.api_version, "kind": gvk.kind, "name": owner.name}
    reference |= {"uid": owner.metadata.uid or ""}
    labels = {"priorityClassName": f"p-{namespace}"[:60].strip("-")}
    pod = {
        "metadata": {**metadata, "labels": labels, "ownerReferences": [reference]},
        "spec": {**POD, "schedulerName": "kai-scheduler"},
    }
    return await client.create(Pod.from_dict(pod))


@pytest.mark.timeout(180)
async def test_every_grant_is_asked_for_and_nothing_else(
    run_under: Any, audited: Environment, live_client: LiveClient, namespace: str
) -> None:
    kinds = owners()
    made = [
        open_crd(gvk, key[1], subresources={"status": {}})
        for key, gvk in kinds.items()
        if gvk.group not in SERVED
    ]
    await audited.install_crds(custom_resource_definition(PodGroup), *made)
    name = f"p-{namespace}"[:60].strip("-")
    await live_client.create(PRIORITY.from_dict({"metadata": {"name": name}, "value": 1}))
    defaults = {"metadata": {"name": "defaults", "namespace": namespace}, "data": {"types": "[]"}}
    await live_client.create(ConfigMap.from_dict(defaults))
    async with run_under(grouper=True) as run:
        pods = [await grouped(live_client, namespace, key, gvk) for key, gvk in kinds.items()]
        await grouped(live_client, namespace, ("", "pods"), Pod.gvk)

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
            missing = rbac.collected(rbac.Part.POD_GROUPER) - LIVE - GANGS - run.asked().granted
            assert not missing
            return True

        await eventually(all_asked, timeout=60, reason="every grant is asked for")
        assert not run.asked().refused
