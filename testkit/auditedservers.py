# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""API servers with every kind of the managers, which record the requests of a group of users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment, open_crd
from controller_runtime.machinery import GVK
from controller_runtime.rest import RESTMapper, Transport
from controller_runtime.testing.pytest_envtest import running
from ctrl_testkit.faults import audit_flags
from trainerctl.localcluster import manifests
from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import JOBSET, JOBSETS

GANGS = Options(kubernetes="1.35", workloads=True)


@contextmanager
def audited_server(
    log: Path, group: str, *crds: dict[str, Any], flags: list[str] = GANGS.api_server_flags
) -> Iterator[Environment]:
    """Run an API server that serves Kubernetes' gangs, the kinds of Trainer, and ``crds``."""
    environment = Environment(
        api_server_flags=[*audit_flags(log, userGroups=[group]), *flags], version=GANGS.kubernetes
    )

    async def install() -> None:
        binaries = await Binaries().locate(JOBSETS["0.11"])
        groups = [
            open_crd(GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup"), subresources={"status": {}}),
            open_crd(GVK("scheduling.volcano.sh", "v1beta1", "PodGroup"), subresources={"status": {}}),
        ]
        await environment.install_crds(*manifests.crds(binaries[JOBSET.name]), *groups, *crds)
        async with Transport(environment.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            await client.create(Namespace.from_dict({"metadata": {"name": manifests.TRAINER_NAMESPACE}}))

    with running(environment):
        anyio.run(install)
        yield environment
