# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A runtime whose JobSet creates the claims of its pods, as Trainer v2.3's TorchTune runtimes do, on JobSet 0.11."""

from collections.abc import Iterator
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, NamespacedName, conditions, unstructured
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.manifests import VOLUMES
from trainerctl.localcluster.options import Options

from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob

CLAIM = unstructured(GVK("", "v1", "PersistentVolumeClaim"))

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def local_cluster(run_cluster: Any) -> Iterator[Cluster]:
    """Yield a cluster whose JobSet has ``volumeClaimPolicies``."""
    with run_cluster(Options(nodes=1, jobset="0.11")) as cluster:
        yield cluster


async def test_a_train_job_gets_its_claims_and_completes(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    mount = {"name": "initializer", "mountPath": "/workspace"}
    pod = {"containers": [{"name": "node", "image": "busybox", "volumeMounts": [mount]}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"templates": [{"metadata": {"name": mount["name"]}, "spec": claim}]}]
    spec = {"template": {"spec": {"replicatedJobs": [job], "volumeClaimPolicies": claims}}}
    metadata = {"name": "claims", "namespace": cluster_namespace}
    await cluster_client.create(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))
    ref = {"name": "claims", "kind": "TrainingRuntime"}
    metadata = {"name": "tune", "namespace": cluster_namespace}
    train_job = await cluster_client.create(
        TrainJob.from_dict({"metadata": metadata, "spec": {"runtimeRef": ref}})
    )

    async def complete() -> bool:
        stored = await cluster_client.get(TrainJob, train_job.key)
        return conditions.is_true(stored.status.conditions, "Complete")

    await eventually(complete, timeout=60, reason="the TrainJob is Complete")
    (made,) = await cluster_client.list(CLAIM, namespace=cluster_namespace)
    (used,) = await cluster_client.list(Pod, namespace=cluster_namespace)
    assert made.name in str(used.to_dict()["spec"]["volumes"])


async def test_more_claims_than_volumes_are_bound_one_after_the_other(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for number in range(VOLUMES + 2):
        metadata = {"name": f"data-{number}", "namespace": cluster_namespace}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}
        claim = await cluster_client.create(CLAIM.wrap(body))

        async def bound(key: NamespacedName = claim.key) -> bool:
            return str((await cluster_client.get(CLAIM, key)).nested("status", "phase")) == "Bound"

        await eventually(bound, timeout=60, reason=f"claim {number} is bound")
        await cluster_client.delete(claim)
