# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A runtime whose JobSet creates the claims of its pods, as Trainer v2.3's TorchTune runtimes do, on JobSet 0.11."""

from collections.abc import Iterator
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, NamespacedName, unstructured
from controller_runtime.machinery.errors import ForbiddenError, InvalidError
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.manifests import VOLUMES
from trainerctl.localcluster.options import Options

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.runtime import core
from pkg.webhooks import TrainJobWebhook
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import until

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
    await cluster_client.create(written_runtime(cluster_namespace, pod=pod, job_set=_claims(mount["name"])))
    train_job = await cluster_client.create(written_train_job(cluster_namespace, "runtime"))
    await until(cluster_client, train_job, "Complete")
    (made,) = await cluster_client.list(CLAIM, namespace=cluster_namespace)
    (used,) = await cluster_client.list(Pod, namespace=cluster_namespace)
    assert made.name in str(used.to_dict()["spec"]["volumes"])


def _claims(*names: str, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {
        "volumeClaimPolicies": [{"templates": [{"metadata": {"name": name}, "spec": spec} for name in names]}]
    }


# The length of the TrainJob's name, changes of the JobSet's spec, and its volumes.
JOB_SETS: list[tuple[int, dict[str, Any], list[dict[str, Any]]]] = [
    (4, {}, [{"name": "data"}]),
    (4, _claims("data"), []),
    (4, _claims("data", "data"), []),
    (4, _claims("data", "other"), []),
    (4, _claims("data"), [{"name": "data"}]),
    (4, _claims("data", accessModes=["RWX"]), []),
    (4, _claims("data", accessModes=[]), []),
    (4, _claims("data", resources={"requests": {"storage": "0"}}), []),
    (4, _claims("data", resources={}), []),
    (42, _claims("data"), []),
    (4, {"coordinator": {"replicatedJob": "node", "podIndex": 1}}, [{"name": "data"}]),
    (4, {"coordinator": {"replicatedJob": "node", "podIndex": 2}}, [{"name": "data"}]),
    (26, {"coordinator": {"replicatedJob": "node"}}, [{"name": "data"}]),
    (27, {"coordinator": {"replicatedJob": "node"}}, [{"name": "data"}]),
    (27, {"coordinator": {"replicatedJob": "node"}, "network": {"subdomain": "net"}}, [{"name": "data"}]),
]


@pytest.mark.parametrize("number", range(len(JOB_SETS)))
async def test_job_set_and_the_api_server_refuse_what_is_warned_of(
    cluster_client: LiveClient, cluster_namespace: str, number: int
) -> None:
    length, changes, volumes = JOB_SETS[number]
    mount = {"name": "data", "mountPath": "/data"}
    pod = {"containers": [{"name": "node", "image": "busybox", "volumeMounts": [mount]}], "volumes": volumes}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    spec = {"replicatedJobs": [{"name": "node", "template": {"spec": job}}], **changes}
    metadata = {"name": "x" * length, "namespace": cluster_namespace}
    known = FakeClient(written_runtime(cluster_namespace, job_set=spec))
    train_job = written_train_job(cluster_namespace, "runtime", name=metadata["name"])
    warnings = await TrainJobWebhook(await core.new(known, known)).validate_create(train_job)
    refused = False
    try:
        await cluster_client.create(JobSet.from_dict({"metadata": metadata, "spec": spec}), dry_run=True)
        for policy in spec.get("volumeClaimPolicies") or ():
            for claim in policy["templates"]:
                body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": claim["spec"]}
                body["metadata"] = {"name": f"{claim['metadata']['name']}-x", "namespace": cluster_namespace}
                await cluster_client.create(CLAIM.wrap(body), dry_run=True)
    except (ForbiddenError, InvalidError):
        refused = True
    assert bool(warnings) == refused


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
