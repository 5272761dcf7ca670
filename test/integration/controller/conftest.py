# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the controllers' tests."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually, open_crd
from controller_runtime.machinery import GVK, Object, unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob

CRD = unstructured(GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))


@pytest.fixture
async def leave_no_jobs(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> AsyncIterator[None]:
    """Delete the TrainJobs and JobSets after the test, so that the managers of other tests do not find them."""
    yield
    for kind in (TrainJob, JobSet):
        await live_client.delete_all_of(kind, namespace=namespace)


@pytest.fixture
async def serve_pod_groups(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str
) -> AsyncIterator[Callable[[type[Object]], Awaitable[None]]]:
    """Yield a function that serves a kind of PodGroups until the test ends: ``await serve_pod_groups(kind)``."""
    served: list[str] = []

    async def serve(kind: type[Object]) -> None:
        served.append(f"podgroups.{kind.gvk.group}")
        await trainer_control_plane.install_crds(open_crd(kind.gvk))

    yield serve
    # The managers of other tests would find objects that are left.
    await live_client.delete_all_of(TrainJob, namespace=namespace)
    for name in served:
        crd = await live_client.get(CRD, ("", name))
        await live_client.delete(crd)

        async def gone(crd: Object = crd) -> bool:
            try:
                await live_client.get(CRD, crd.key)
            except NotFoundError:
                return True
            return False

        await eventually(gone, timeout=30, reason="the CRD is gone")
