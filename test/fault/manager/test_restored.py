# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""etcd is restored from an older snapshot under the running manager: resourceVersions go backwards."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError, RESTMapper, Transport

from pkg import shipped
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from testkit.builders import written_train_job

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
KEPT = 5
"""The number of TrainJobs in the snapshot."""
LOST = 20
"""The number of TrainJobs that are created after the snapshot."""
BUMP = 1000
"""By how much the revision of the restored store is increased: by more than the number of lost revisions."""


def train_job(name: str, nodes: int = 1) -> TrainJob:
    return written_train_job(
        "default", "torch-distributed", kind=None, name=name, trainer={"numNodes": nodes}
    )


async def nodes_of(client: LiveClient, name: str) -> int | None:
    """Return how many pods the JobSet of a TrainJob runs, or None without a JobSet."""
    try:
        found = await client.get(JobSet, ("default", name))
    except NotFoundError:
        return None
    return (found.spec.replicated_jobs or [])[0].template.spec.parallelism


async def collect_garbage(client: LiveClient) -> None:
    """Delete JobSets whose TrainJob does not exist, as the garbage collector of a cluster does."""
    while True:
        with contextlib.suppress(RestError, StatusError):
            uids = {each.metadata.uid for each in await client.list(TrainJob)}
            for job_set in await client.list(JobSet):
                if not uids & {owner.uid for owner in job_set.metadata.owner_references or ()}:
                    await client.delete(job_set, preconditions={"uid": job_set.metadata.uid or ""})
        await anyio.sleep(1)


async def restart_with(plane: Any, snapshot: Path, *, take: bool) -> None:
    """Stop the API server and etcd, save the snapshot with ``take`` or else restore it, and start both again."""
    plane.supervisor.kill(["kube-apiserver", "etcd"])
    data = plane._data  # only this test needs etcd's data directory, so it is private
    source, target = (data, snapshot) if take else (snapshot, data)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    if not take:
        await bump_revision(plane)
    await plane.start()


async def bump_revision(plane: Any) -> None:
    """Change the store as ``etcdutl snapshot restore --bump-revision --mark-compacted`` does.

    Without it, servers accept the old position of a watch in the new history. Clients cannot notice that, and
    Kubernetes' documentation says to restart all of them.
    """
    plane.supervisor.start(plane._etcd_component())
    connector = aiohttp.TCPConnector(ssl=plane.etcd_tls)
    async with aiohttp.ClientSession(plane.etcd_url, connector=connector) as session:

        async def put() -> int:
            try:
                async with session.post("/v3/kv/put", json={"key": "YnVtcA==", "value": "eA=="}) as answer:
                    return int((await answer.json())["header"]["revision"])
            except aiohttp.ClientError:
                return 0

        await eventually(put, timeout=30, reason="etcd has started")
        revision = 0
        for _ in range(BUMP):
            revision = await put()
        body = {"revision": str(revision), "physical": True}
        async with session.post("/v3/kv/compaction", json=body) as answer:
            assert answer.status == 200, await answer.text()
    plane.supervisor.kill(["etcd"])


async def test_f2_a_store_that_goes_back_in_time_is_followed(
    trainer_crds: list[dict[str, Any]], new_proxy: Any, new_manager: Any, figure: Any, tmp_path: Path
) -> None:
    """Catches a cache that keeps objects which the restored store never had, or waits for versions of the future."""
    async with Environment(etcd_gateway=True) as environment:
        await environment.install_crds(*trainer_crds)
        plane = environment.control_plane
        async with Transport(environment.config) as transport, anyio.create_task_group() as collector:
            client = LiveClient(transport, RESTMapper(transport))
            (original,) = [
                each
                for each in shipped.manifests("runtimes")
                if each["metadata"]["name"] == "torch-distributed"
            ]
            await client.create(ClusterTrainingRuntime.from_dict(original))
            proxy = await new_proxy(environment.config)
            ours = new_manager(proxy.url)
            ours.start()
            await ours.ready()
            for number in range(KEPT):
                await client.create(train_job(f"kept-{number}"))

            async def have(wanted: dict[str, int]) -> bool:
                found = {name: await nodes_of(client, name) for name in wanted}
                assert found == wanted
                return True

            kept = {f"kept-{number}": 1 for number in range(KEPT)}
            await eventually(lambda: have(kept), timeout=30, reason="the kept TrainJobs have their JobSets")
            await anyio.sleep(1)
            snapshot = tmp_path / "snapshot"
            await restart_with(plane, snapshot, take=True)
            for number in range(LOST):
                await client.create(train_job(f"lost-{number}"))
            lost = {f"lost-{number}": 1 for number in range(LOST)}
            await eventually(lambda: have(lost), timeout=60, reason="the later TrainJobs have their JobSets")
            await client.delete(train_job("kept-0"))
            await client.delete(JobSet.from_dict({"metadata": {"namespace": "default", "name": "kept-0"}}))
            await anyio.sleep(2)

            await restart_with(plane, snapshot, take=False)
            restored = anyio.current_time()
            # The same names are used with another spec, so that what the manager remembers of them is out of date.
            again = {f"lost-{number}": 3 for number in range(0, LOST, 2)} | {"new": 2}
            for name, nodes in again.items():
                await client.create(train_job(name, nodes))
            collector.start_soon(collect_garbage, client)
            await eventually(
                lambda: have(again),
                timeout=120,
                reason="the TrainJobs created in the restored store have their JobSets",
            )
            figure(
                "F2 etcd restored: new TrainJobs have their JobSets",
                anyio.current_time() - restored,
                at_most=60,
            )
            # The JobSet deleted after the snapshot exists again; one that is deleted now is created again.
            assert await have(kept)
            await client.delete(JobSet.from_dict({"metadata": {"namespace": "default", "name": "kept-0"}}))
            await eventually(
                lambda: have(kept),
                timeout=60,
                reason="the deleted JobSet of the restored store is created again",
            )
            await client.patch(train_job("kept-1"), raw_patch(MERGE, b'{"spec":{"suspend":true}}'))

            async def suspended() -> bool:
                found = await client.get(JobSet, ("default", "kept-1"))
                return bool(found.spec.suspend)

            await eventually(
                suspended, timeout=60, reason="the JobSet follows a change of a restored TrainJob"
            )
            figure("F2 etcd restored: followed", anyio.current_time() - restored, at_most=90)
            assert ours.running
            collector.cancel_scope.cancel()
