# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""MPI on a real API server: keys and host file, the changes that are reverted, and the start of watches."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, consistently, eventually
from controller_runtime.rest import Request

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_runtime, written_train_job

pytestmark = pytest.mark.integration

RunManager = Callable[..., Any]


@pytest.fixture(autouse=True)
async def leave_no_jobs(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> AsyncIterator[None]:
    """Delete the TrainJobs after the test, so that the managers of other tests do not find them."""
    yield
    await live_client.delete_all_of(TrainJob, namespace=namespace)


def asked_of(sent: list[Request], *plurals: str) -> dict[str, set[str]]:
    """Return, by plural, the forms in which the manager requested these kinds: words of the Accept header."""
    found: dict[str, set[str]] = {plural: set() for plural in plurals}
    for request in sent:
        parts = request.path.split("/")
        for plural in plurals:
            if request.method == "GET" and plural in parts:
                accept = next(
                    (value for key, value in request.headers.items() if key.lower() == "accept"), ""
                )
                kinds = re.findall(r"as=(\w+)", accept)
                found[plural] |= {kind.removesuffix("List") for kind in kinds} or {"whole"}
    return {plural: forms for plural, forms in found.items() if forms}


async def test_keys_and_host_file_are_made_before_the_job_set_heal_and_outlive_the_manager(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(written_runtime(namespace, "mpi", mlPolicy={"mpi": {"runLauncherAsNode": True}}))
    keys, hosts = (namespace, "mpi-mpi-ssh-auth"), (namespace, "mpi-mpi-hostfile")
    async with run_manager():
        await live_client.create(written_train_job(namespace, "mpi", name="mpi", trainer={"numNodes": 3}))
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


async def test_keys_that_a_user_made_beforehand_are_used_and_not_changed(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(written_runtime(namespace, "mpi", mlPolicy={"mpi": {}}))
    metadata = {"name": "mpi-mpi-ssh-auth", "namespace": namespace}
    data = {"ssh-privatekey": "eA==", "ssh-publickey": "eA=="}
    before = await live_client.create(Secret.from_dict({"metadata": metadata, "data": data}))
    async with run_manager():
        await live_client.create(written_train_job(namespace, "mpi", name="mpi"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "mpi")), reason="the JobSet is made")
    assert await live_client.get(Secret, before.key) == before


async def test_config_maps_are_watched_from_the_first_job_on_and_secrets_once_one_needs_them(
    run_manager: RunManager, live_client: LiveClient, namespace: str
) -> None:
    await live_client.create(written_runtime(namespace, "plain", mlPolicy={"numNodes": 1}))
    await live_client.create(
        written_runtime(namespace, "mpi", mlPolicy={"mpi": {}})
    )  # a runtime without TrainJobs causes no requests for these kinds
    sent: list[Request] = []
    async with run_manager(sent=sent):
        await live_client.create(written_train_job(namespace, "plain", name="plain"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "plain")), reason="a plain job runs")
        assert asked_of(sent, "jobsets") == {"jobsets": {"whole"}}
        metadata = {"PartialObjectMetadata"}
        assert asked_of(sent, "secrets", "configmaps") == {
            "configmaps": metadata
        }  # it may have a snapshot there

        await live_client.create(written_train_job(namespace, "mpi", name="mpi"))
        await eventually(lambda: live_client.get(JobSet, (namespace, "mpi")), reason="a job with MPI runs")
        assert asked_of(sent, "secrets", "configmaps") == {"secrets": metadata, "configmaps": metadata}
    watches = [request.path for request in sent if dict(request.query).get("watch")]
    assert {"/api/v1/secrets", "/api/v1/configmaps"} <= set(watches)
