# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An API server that serves Kubernetes' own gangs.

``CLUSTER_KUBERNETES`` chooses the release.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment, apply_manifests
from controller_runtime.machinery import Object
from controller_runtime.testing.pytest_envtest import running
from trainerctl.localcluster import manifests
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import DEFAULT_JOBSET, JOBSETS

from pkg.apis.scheduling import v1alpha1, v1alpha2, v1beta1


@dataclass(frozen=True)
class Release:
    """The form of gangs in a release of Kubernetes."""

    kind: type[Object]
    member: dict[str, Any]
    """Fields of the spec of a pod in the gang ``gang``."""
    jobset: str
    """A release of JobSet whose CRD keeps these fields."""

    @property
    def flags(self) -> list[str]:
        """Return the flags of an API server that serves gangs."""
        return Options(kubernetes=KUBERNETES, workloads=True).api_server_flags


GROUP = {"schedulingGroup": {"podGroupName": "gang"}}
RELEASES = {
    "1.35": Release(v1alpha1.Workload, {"workloadRef": {"name": "gang", "podGroup": "gang"}}, "0.11"),
    "1.36": Release(v1alpha2.PodGroup, GROUP, "0.12"),
    "1.37": Release(v1beta1.PodGroup, GROUP, "0.12"),
}
KUBERNETES = os.environ.get("CLUSTER_KUBERNETES", "1.35")


@pytest.fixture(scope="session")
def release() -> Release:
    """Return the release under test."""
    if KUBERNETES not in RELEASES:
        pytest.skip(f"Kubernetes {KUBERNETES} has no gangs")
    return RELEASES[KUBERNETES]


@pytest.fixture(scope="session")
def control_plane(release: Release) -> Iterator[Environment]:
    with running(Environment(version=KUBERNETES, api_server_flags=release.flags)) as environment:
        yield environment


@pytest.fixture(scope="session")
def trainer_control_plane(
    control_plane: Environment, install_trainer: Callable[[Environment], None]
) -> Environment:
    """Return this folder's API server, with Trainer installed."""
    install_trainer(control_plane)
    return control_plane


@pytest.fixture
async def install_job_set(live_client: LiveClient, release: Release) -> Callable[[str], Any]:
    """Return a function that replaces JobSet's CRD by that of a release, as an upgrade does."""
    crds = {}
    for version in {release.jobset, DEFAULT_JOBSET, "0.10"}:
        binaries = await Binaries().locate(JOBSETS[version])
        crds[version] = manifests.crds_of(binaries[JOBSETS[version].name])

    async def install(version: str) -> None:
        await apply_manifests(live_client, crds[version], owner="test")

    return install


@pytest.fixture
async def with_field(
    trainer_control_plane: Environment, release: Release, install_job_set: Callable[[str], Any]
) -> AsyncIterator[None]:
    """Install a CRD of JobSet that keeps the field, for the time of one test."""
    del trainer_control_plane
    await install_job_set(release.jobset)
    yield
    await install_job_set(DEFAULT_JOBSET)
