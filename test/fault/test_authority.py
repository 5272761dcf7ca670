# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's certificate authority is replaced while the manager runs; the manager reads it from a file."""

import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Authority, Binaries, Environment
from controller_runtime.rest import Config, RESTMapper, Transport
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at
from testkit.processes import manager_flags, running_manager

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]


@pytest.fixture
async def server() -> AsyncIterator[Environment]:
    """Yield an API server that only this test uses, with the kinds that the manager watches."""
    async with Environment() as environment:
        binaries = await Binaries().locate(JOBSET)
        await environment.install_crds(*manifests.crds(binaries[JOBSET.name]))
        yield environment


async def train(config: Config, name: str, *, within: float) -> float:
    """Create a TrainJob; return the seconds until it has its JobSet."""
    async with Transport(config) as transport:
        client = LiveClient(transport, RESTMapper(transport))
        await client.create(written_runtime("default", name))
        await client.create(written_train_job("default", name, name=name))
        began = time.monotonic()
        await job_set_at(client, ("default", name), timeout=within)
        return time.monotonic() - began


async def test_the_manager_goes_on_when_the_clusters_authority_is_replaced(
    server: Environment, tmp_path: Path, figure: Any
) -> None:
    plane = server.control_plane
    old, new = plane.authority.certificate, Authority.create("the next authority")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(old)
    content: Any = server.kubeconfig_for("manager", ["system:masters"])
    content["clusters"][0]["cluster"].pop("certificate-authority-data", None)
    content["clusters"][0]["cluster"]["certificate-authority"] = str(trusted)
    with running_manager(manager_flags(tmp_path, content), tmp_path / "manager.log"):
        await train(server.config, "before", within=60)

        # As administrators do: trust both, then let the server show the new one, then remove the old one.
        trusted.write_bytes(old + new.certificate)
        plane.authority_file.write_bytes(
            old + new.certificate
        )  # the old one still signs the clients' certificates
        new.server("kube-apiserver", ["127.0.0.1", "localhost", "kubernetes.default.svc"]).write(
            plane.pki, "server"
        )
        plane.kill_api_server()
        await plane.start_api_server()
        trusted.write_bytes(new.certificate)

        assert server.config.tls is not None
        tls = dataclasses.replace(server.config.tls, ca=new.certificate)
        config = dataclasses.replace(server.config, tls=tls)
        figure(
            "authority replaced: next TrainJob's JobSet after",
            await train(config, "after", within=120),
            at_most=60,
        )
