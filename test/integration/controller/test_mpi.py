# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""MPI on a real API server: keys and host file, what heals, what stays, and what is watched when."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pkg.apis.core.v1 import ConfigMap, Secret
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.ctrl import Manager
from pkg.ctrl.client import LiveClient
from pkg.ctrl.envtest import Environment, consistently, eventually

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


@pytest.fixture(autouse=True)
async def leave_no_jobs(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> AsyncIterator[None]:
    """Remove the TrainJobs of a test: the managers of others would find them."""
    yield
    await live_client.delete_all_of(TrainJob, namespace=namespace)


def runtime(namespace: str, name: str, **ml_policy: Any) -> TrainingRuntime:
    def job(name: str, **template: Any) -> dict[str, Any]:
        containers = [{"name": "node", "image": "busybox"}]
        return {
            "name": name,
            "template": {**template, "spec": {"template": {"spec": {"containers": containers}}}},
        }

    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    jobs = [job("launcher", metadata={"labels": labels}), job("node")]
    spec = {"mlPolicy": ml_policy, "template": {"spec": {"replicatedJobs": jobs}}}
    return TrainingRuntime.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def train_job(namespace: str, runtime: str, **spec: Any) -> TrainJob:
    ref = {"name": runtime, "kind": "TrainingRuntime"}
    return TrainJob.from_dict(
        {"metadata": {"name": runtime, "namespace": namespace}, "spec": {"runtimeRef": ref, **spec}}
    )


def watched(mgr: Manager) -> set[tuple[str, bool]]:
    """Return which of the two kinds the cache holds, and whether their metadata alone."""
    return {
        (kind.kind, metadata) for kind, metadata in mgr.cache._engines if kind in (ConfigMap.gvk, Secret.gvk)
    }


async def test_keys_and_host_file_are_made_before_the_job_set_heal_and_outlive_the_manager(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(runtime(namespace, "mpi", mpi={"runLauncherAsNode": True}))
    keys, hosts = (namespace, "mpi-mpi-ssh-auth"), (namespace, "mpi-mpi-hostfile")
    async with run_manager():
        await live_client.create(train_job(namespace, "mpi", trainer={"numNodes": 3}))
        await eventually(lambda: live_client.get(JobSet, (namespace, "mpi")), reason="the JobSet is made")
        secret, host_file = await live_client.get(Secret, keys), await live_client.get(ConfigMap, hosts)
        assert (secret.type, secret.immutable) == ("kubernetes.io/ssh-auth", True)
        assert [line.split()[0] for line in (host_file.data or {})["hostfile"].splitlines()] == [
            "mpi-launcher-0-0.mpi",
            "mpi-node-0-0.mpi",
            "mpi-node-0-1.mpi",
        ]

        changed = host_file.deep_copy()
        changed.data = {"hostfile": "nobody"}
        await live_client.update(changed)

        async def healed() -> bool:
            return (await live_client.get(ConfigMap, hosts)).data == host_file.data

        await eventually(healed, reason="the host file is as it was")

    async with run_manager():

        async def same_keys() -> bool:
            return (await live_client.get(Secret, keys)).metadata.uid == secret.metadata.uid

        await consistently(same_keys, reason="a new manager keeps the keys")
        await live_client.delete(secret)

        async def new_keys() -> bool:
            found = await live_client.get(Secret, keys)
            return found.metadata.uid != secret.metadata.uid and found.data != secret.data

        await eventually(new_keys, reason="lost keys are replaced")


async def test_secrets_and_config_maps_are_watched_once_somebody_needs_them(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(runtime(namespace, "plain", numNodes=1))
    await live_client.create(runtime(namespace, "mpi", mpi={}))
    async with run_manager() as mgr:
        await live_client.create(train_job(namespace, "plain"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "plain")), reason="a plain job runs")
        assert watched(mgr) == set()

        await live_client.create(train_job(namespace, "mpi"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "mpi")), reason="so does one with MPI")
        assert watched(mgr) == {("ConfigMap", True), ("Secret", True)}
