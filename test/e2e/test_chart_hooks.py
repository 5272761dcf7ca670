# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Jobs of the chart's hooks, run as pods with the rights of the chart: they install, change and remove runtimes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import LiveClient
from controller_runtime.envtest import apply_manifests, eventually
from controller_runtime.machinery.errors import NotFoundError
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

from hack import chart
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit import charts
from testkit.charts import NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[2]
LABELS: Final = {"trainer.kubeflow.org/managed-by": "runtimes-installer"}
JAX, TORCH = "jax-distributed", "torch-distributed"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="module")
def local_cluster(
    run_cluster: Any, kubectl: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Yield a cluster in which the image of the hooks has kubectl."""
    programs = tmp_path_factory.mktemp("alpine")
    (programs / "kubectl").symlink_to(kubectl)
    (programs / "python").symlink_to(sys.executable)
    options = Options(
        nodes=1, shape=NodeShape(gpus=0), run_processes=True, images=[f"docker.io/alpine={programs}"]
    )
    with run_cluster(options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return a function that renders the objects of the chart's installer, with the named runtimes enabled."""
    copied = charts.copied(chart.CHART, tmp_path_factory.mktemp("chart"), "jobset", "lws")

    def rendered(*enabled: str) -> list[Manifest]:
        flags = [f"--set=runtimes.{name}.enabled=true" for name in enabled]
        found = charts.rendered(copied, *flags, "--set=jobset.install=false").values()
        return [each for each in found if "runtimes-installer" in each["metadata"]["name"]]

    return rendered


async def hook(client: LiveClient, objects: list[Manifest], name: str) -> None:
    """Run the Job of a hook as helm does: apply the other objects first, and replace a Job of the same name."""
    (job,) = (
        Job.from_dict(each)
        for each in objects
        if name in each["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    )
    await apply_manifests(client, [each for each in objects if each["kind"] != "Job"])
    with suppress(NotFoundError):
        await client.delete(job, propagation="Background")
    await eventually(lambda: removed(client, job), timeout=60, reason="the Job before it is deleted")
    await client.create(job)

    async def complete() -> bool:
        found = await client.get(Job, job.key)
        ended = {each.type for each in found.status.conditions or [] if each.status == "True"}
        assert "Failed" not in ended, await logs(client)
        return "Complete" in ended

    await eventually(complete, timeout=120, reason=f"the hook {name} is complete")


async def removed(client: LiveClient, job: Job) -> bool:
    try:
        await client.get(Job, job.key)
    except NotFoundError:
        return not [
            pod for pod in await client.list(Pod, namespace=NAMESPACE) if pod.name.startswith(job.name)
        ]
    return False


async def logs(client: LiveClient) -> str:
    return "\n".join(str(pod.to_dict()["status"]) for pod in await client.list(Pod, namespace=NAMESPACE))


async def installed(client: LiveClient) -> set[str]:
    return {each.name for each in await client.list(ClusterTrainingRuntime, labels=LABELS)}


async def test_the_hooks_install_change_and_remove_the_runtimes(
    cluster_client: LiveClient, render: Render
) -> None:
    for name in (JAX, TORCH):
        await cluster_client.delete(await cluster_client.get(ClusterTrainingRuntime, ("", name)))
    others = {each.name for each in await cluster_client.list(ClusterTrainingRuntime)} - {JAX, TORCH}

    await hook(cluster_client, render("torchDistributed", "jaxDistributed"), "post-install")
    assert await installed(cluster_client) == {JAX, TORCH}

    await hook(cluster_client, render("torchDistributed"), "post-upgrade")
    await eventually(
        lambda: only(cluster_client, {TORCH}), timeout=60, reason="the disabled runtime is deleted"
    )

    await hook(cluster_client, render("torchDistributed"), "pre-delete")
    await eventually(lambda: only(cluster_client, set()), timeout=60, reason="the runtimes are deleted")
    assert {each.name for each in await cluster_client.list(ClusterTrainingRuntime)} == others


async def only(client: LiveClient, names: set[str]) -> bool:
    return await installed(client) == names
