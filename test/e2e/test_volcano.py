# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The PodGroup and the pods' annotation for Volcano, on a whole cluster in which Volcano itself does not run."""

import os
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually, install_crds, open_crd, read_manifests, wait_established
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.conditions import is_true
from controller_runtime.machinery.errors import ForbiddenError

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.apis.volcano.v1beta1 import PodGroup

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PRIORITY_CLASS = unstructured(GVK("scheduling.k8s.io", "v1", "PriorityClass"))


def pod_group_crd() -> dict[str, Any]:
    """Return Volcano's CRD if a copy is on this machine, or else one that accepts all fields."""
    reference = Path(os.environ.get("TRAINER_REFERENCE", ROOT.parent / "shared" / "reference"))
    file = reference / "crds" / "others" / "scheduling.volcano.sh_podgroups.yaml"
    if file.exists():
        (crd,) = read_manifests(file)
        return crd
    return open_crd(PodGroup.gvk)


def runtime(namespace: str, name: str, priority_class: str) -> TrainingRuntime:
    container = {
        "name": "node",
        "image": "busybox",
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
    }
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"priorityClassName": priority_class, "containers": [container]}}},
    }
    return TrainingRuntime.from_dict(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "mlPolicy": {"numNodes": 3},
                "podGroupPolicy": {"volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}},
                "template": {
                    "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "research"}},
                    "spec": {"replicatedJobs": [{"name": "node", "template": template}]},
                },
            },
        }
    )


async def test_a_volcano_job_has_its_pod_group_its_pods_name_it_and_it_completes(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    names = await install_crds(cluster_client, [pod_group_crd()])
    await wait_established(cluster_client, names, timeout=60)
    priority = PRIORITY_CLASS.from_dict({"metadata": {"name": cluster_namespace}, "value": 7})
    await cluster_client.create(priority)
    await cluster_client.create(runtime(cluster_namespace, "volcano", cluster_namespace))
    await cluster_client.create(runtime(cluster_namespace, "unknown-class", "no-such-class"))

    def train_job(runtime: str) -> TrainJob:
        spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": runtime}}
        metadata = {"name": "job", "namespace": cluster_namespace}
        return TrainJob.from_dict({"metadata": metadata, "spec": spec})

    with pytest.raises(ForbiddenError, match='PriorityClass "no-such-class" doesn\'t exist'):
        await cluster_client.create(train_job("unknown-class"))

    job = await cluster_client.create(train_job("volcano"))
    group = await eventually(lambda: cluster_client.get(PodGroup, job.key), reason="the PodGroup is made")
    assert group.to_dict()["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "1500m", "memory": "3Gi"},
        "networkTopology": {"highestTierAllowed": 2, "mode": "hard"},
        "priorityClassName": cluster_namespace,
        "queue": "research",
    }
    (owner,) = group.metadata.owner_references or [OwnerReference()]
    assert (owner.kind, owner.uid, owner.controller) == ("TrainJob", job.metadata.uid, True)

    async def complete() -> bool:
        return is_true((await cluster_client.get(TrainJob, job.key)).status.conditions, "Complete")

    await eventually(complete, timeout=60, reason="the TrainJob is Complete")
    pods = await cluster_client.list(Pod, namespace=cluster_namespace)
    assert [pod.annotations.get("scheduling.k8s.io/group-name") for pod in pods] == ["job"] * 3
    await cluster_client.delete(priority)
