# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kueue with Kubernetes' own gangs: a gang that is started, evicted and started elsewhere is never bound in part.

``CLUSTER_KUBERNETES`` and ``CLUSTER_JOBSET`` choose the releases. Kueue does not run: the tests send its exact writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import Node, Pod
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.envtest import consistently, eventually
from controller_runtime.machinery import Unstructured
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import train_job_document, written_runtime
from testkit.clusters import JOBSET, KUBERNETES, gang_kind
from testkit.kueue_writes import MANAGER, QUEUE, ActiveError, Kueue

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

GANG = gang_kind()
FLAVORS = {"spot": ("node-0", "node-1"), "reserved": ("node-2", "node-3")}
WHOLE, GPUS = 2, 8
RunCluster = Callable[[Options], AbstractContextManager[Cluster]]


@pytest.fixture(scope="module")
def cluster(run_cluster: RunCluster) -> Iterator[Cluster]:
    """Yield a cluster whose scheduler schedules Kubernetes' own gangs; each pod of the tests fills a node."""
    options = Options(
        shape=NodeShape(gpus=GPUS), timeout=600, kubernetes=KUBERNETES, jobset=JOBSET, workloads=True
    )
    with run_cluster(options) as running:
        yield running


class Gang:
    """The pods of one TrainJob, and the actions of other controllers on them."""

    def __init__(self, client: LiveClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def pods(self) -> list[Pod]:
        return await self._client.list(Pod, namespace=self._namespace, labels={"gang": "yes"})

    async def nodes(self) -> list[str]:
        """Return the nodes of the bound pods."""
        return sorted(each.spec.node_name for each in await self.pods() if each.spec.node_name)

    async def exist(self) -> bool:
        return len(await self.pods()) == WHOLE

    async def are_gone(self) -> bool:
        return not await self.pods()

    async def ungate(self) -> None:
        """Remove Kueue's gate from one pod after another, as its topology controller does."""
        for pod in await self.pods():
            await self._client.patch(pod, raw_patch(MERGE, b'{"spec":{"schedulingGates":null}}'))
            await anyio.sleep(1)

    @asynccontextmanager
    async def never_in_part(self) -> AsyncIterator[None]:
        """Assert that at no time only some of the pods were bound for 5 s or longer.

        A scheduler binds the pods of a gang one after another, so a part is bound for a moment.
        """
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            last, lasted = anyio.current_time(), 0.0
            while True:
                in_part = len(await self.nodes()) not in (0, WHOLE)
                now = anyio.current_time()
                # A long pause between two looks counts as 0.5 s: the machine paused, and with it the scheduler.
                lasted = lasted + min(now - last, 0.5) if in_part else 0.0
                longest, last = max(longest, lasted), now
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            yield
            tasks.cancel_scope.cancel()
        assert longest < 5, f"a part of the gang was bound for {longest:.1f} s"


@pytest.fixture
async def gang(cluster_client: LiveClient, cluster_namespace: str) -> AsyncIterator[Gang]:
    """Yield the gang of the TrainJob ``job``; delete everything at the end."""
    for flavor, names in FLAVORS.items():
        for name in names:
            patch = f'{{"metadata":{{"labels":{{"flavor":"{flavor}"}}}}}}'.encode()
            await cluster_client.patch(Node.from_dict({"metadata": {"name": name}}), raw_patch(MERGE, patch))
    yield Gang(cluster_client, cluster_namespace)
    for kind in (TrainJob, Pod):
        await cluster_client.delete_all_of(kind, namespace=cluster_namespace)

    async def empty() -> bool:
        return not await cluster_client.list(Pod, namespace=cluster_namespace)

    await eventually(empty, timeout=240, reason="the pods are gone")


async def create(client: LiveClient, namespace: str, generation: int) -> None:
    """Create a runtime with a gang, and a TrainJob as Kueue's webhook leaves it."""
    parts: dict[str, Any] = {
        "pod": {"containers": [container()]},
        "pod_metadata": {"annotations": {"sim.local/run-for": "1h"}, "labels": {"gang": "yes"}},
    }
    await client.create(
        written_runtime(namespace, **parts, mlPolicy={"numNodes": WHOLE}, podGroupPolicy={"workload": {}})
    )
    empty = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
    written: dict[str, Any] = {"labels": {QUEUE: "q"}} if generation == 1 else {"runtimePatches": [empty]}
    labels = {"labels": {QUEUE: "q"}}
    document = train_job_document(
        namespace, "runtime", kind="TrainingRuntime", metadata=labels, suspend=True, **written
    )
    await client.create(Unstructured.wrap(document))


def container() -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": GPUS}
    return {"name": "node", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}


async def occupy(client: LiveClient, namespace: str, name: str) -> Pod:
    """Fill a node with an ordinary pod."""
    spec = {"nodeName": name, "containers": [container()]}
    metadata = {"name": "other", "namespace": namespace}
    return await client.create(Pod.from_dict({"metadata": metadata, "spec": spec}))


@pytest.mark.parametrize("generation", [1, 2])
async def test_what_is_evicted_starts_elsewhere_once_all_of_it_fits(
    cluster_client: LiveClient, cluster_namespace: str, gang: Gang, generation: int
) -> None:
    kueue = Kueue(cluster_client, cluster_namespace, generation)
    key = (cluster_namespace, "job")

    async def bound_to(flavor: str) -> None:
        async def reached() -> bool:
            return await gang.nodes() == list(FLAVORS[flavor])

        await eventually(reached, timeout=240, reason=f"the whole gang is bound to {flavor}")

    async def start(flavor: str) -> None:
        await kueue.start("job", ["node"], flavor)
        await eventually(gang.exist, timeout=120, reason="every pod exists")
        await gang.ungate()

    await create(cluster_client, cluster_namespace, generation)
    await eventually(lambda: cluster_client.get(GANG, key), timeout=60, reason="the gang is made")
    async with gang.never_in_part():
        await start("spot")
        await bound_to("spot")
    await eventually(stopped(kueue), timeout=120, reason="Kueue has evicted it")
    await eventually(gang.are_gone, timeout=120, reason="its pods are gone")

    other = await occupy(cluster_client, cluster_namespace, "node-3")
    async with gang.never_in_part():
        await start("reserved")

        async def none_is_bound() -> bool:
            return await gang.exist() and await gang.nodes() == []

        await consistently(none_is_bound, duration=8, reason="half of the gang would fit")
        await cluster_client.delete(other)
        await bound_to("reserved")
    assert f"'minCount': {WHOLE}" in str((await cluster_client.get(GANG, key)).to_dict()["spec"])


def stopped(kueue: Kueue) -> Callable[[], Awaitable[bool]]:
    """Return a condition: Kueue has suspended the TrainJob and removed its placement."""

    async def stop() -> bool:
        try:
            await kueue.stop("job")
        except ActiveError:
            return False
        return True

    return stop
