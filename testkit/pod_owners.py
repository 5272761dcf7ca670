# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Owners of every kind that the pod grouper's role names, and pods of these owners."""

from typing import Any, Final

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import open_crd
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Unstructured
from controller_runtime.machinery.crd import custom_resource_definition

from hack import rbac
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import ANY_VERSION, new_plugins_hub
from pkg.podgrouper.hub import WATCHED_WITHOUT_ROW

READ: Final = {"get", "list", "watch"}
NO_OWNERS: Final = {"", "scheduling.k8s.io"}


def owners() -> dict[tuple[str, str], GVK]:
    """Return the kinds of owners that the role permits to read, by group and resource.

    The version is that of the kind's row in the hub's table, or v1 if that row is for any version or does not exist.
    """
    kinds = new_plugins_hub(FakeClient(), found=[]).kinds()
    rows = [gvk for gvk in kinds if gvk.version != ANY_VERSION]
    beside = [GVK(each.group, "v1", each.kind) for each in WATCHED_WITHOUT_ROW]
    others = [*beside, *(gvk._replace(version="v1") for gvk in kinds if gvk.version == ANY_VERSION)]
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
REPLICAS: Final = {"Launcher": {"replicas": 1}, "Master": {"replicas": 1}, "Worker": {"replicas": 2}}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "Pod": POD,
    "ReplicaSet": ALWAYS,
    "Deployment": ALWAYS,
    "StatefulSet": {**ALWAYS, "serviceName": "s"},
    "Job": {"template": TEMPLATE, "suspend": True},
    "CronJob": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    "JobSet": {"replicatedJobs": [{"name": "n", "template": {"spec": {"template": TEMPLATE}}}]},
    "TrainJob": {"runtimeRef": {"name": "torch-distributed"}},
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2}},
    **{
        f"{kind}Job": {f"{field}ReplicaSpecs": REPLICAS}
        for kind, field in {
            "PyTorch": "pytorch",
            "TF": "tf",
            "JAX": "jax",
            "XGBoost": "xgb",
            "MPI": "mpi",
        }.items()
    },
}


def crds() -> list[dict[str, Any]]:
    """Return the CRDs of PodGroups and of the owners that the API server of these tests does not serve otherwise."""
    made = [
        open_crd(gvk, key[1], subresources={"status": {}})
        for key, gvk in owners().items()
        if gvk.group not in SERVED
    ]
    return [custom_resource_definition(PodGroup), *made]


async def grouped(client: LiveClient, namespace: str, key: tuple[str, str], gvk: GVK) -> Pod:
    """Create an owner of that kind, and a pod of this owner that KAI-Scheduler schedules, so that the pod is grouped.

    If the owner is itself a pod, another scheduler schedules it, so that no watch reports it.
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
