# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures that install Trainer's kinds on a real API server that the tests break on purpose."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment
from controller_runtime.machinery import GVK, unstructured
from ctrl_testkit.faults import audit_log as audit_log
from ctrl_testkit.faults import client as client
from ctrl_testkit.faults import control_plane as control_plane
from ctrl_testkit.faults import namespace as namespace
from ctrl_testkit.faults import new_proxy as new_proxy
from ctrl_testkit.faults import outage_seconds as outage_seconds
from ctrl_testkit.faults import proxy as proxy
from ctrl_testkit.faults import writes as writes
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.builders import crd_without_schema

POD_GROUPS = crd_without_schema("scheduling.x-k8s.io", "v1alpha1", "PodGroup")


@pytest.fixture(scope="session")
def trainer_crds(control_plane: Environment) -> list[dict[str, Any]]:
    """Install Trainer's CRDs, JobSet's and that of coscheduling's PodGroups in ``control_plane``; return them."""

    async def install() -> list[dict[str, Any]]:
        binaries = await Binaries().locate(JOBSET)
        found = [*manifests.crds(binaries[JOBSET.name]), POD_GROUPS]
        await control_plane.install_crds(*found)
        return found

    return anyio.run(install)


@pytest.fixture
async def make_runtime(
    trainer_crds: list[dict[str, Any]], client: LiveClient, namespace: str
) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Yield a function that creates copies of shipped runtimes; they and all TrainJobs are deleted after the test."""
    made: list[ClusterTrainingRuntime] = []

    async def make(original: str, name: str, **policies: Any) -> str:
        (found,) = [each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == original]
        found["metadata"]["name"] = name
        found["spec"] |= policies
        made.append(await client.create(ClusterTrainingRuntime.from_dict(found)))
        return name

    yield make
    for crd in trainer_crds:
        spec = crd["spec"]
        if spec["scope"] == "Namespaced":
            gvk = GVK(spec["group"], spec["versions"][0]["name"], spec["names"]["kind"])
            await client.delete_all_of(unstructured(gvk), namespace=namespace)
    for each in made:
        stored = await client.get(ClusterTrainingRuntime, each.key)
        stored.metadata.finalizers = None
        await client.delete(await client.update(stored))
