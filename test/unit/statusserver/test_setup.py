# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import anyio
import controller_runtime as ctrl
import pytest
from controller_runtime import rest, serving
from controller_runtime.healthz import NotHealthyError
from controller_runtime.webhook import CertWatcher, SelfSigned

from pkg.apis.config.v1alpha1 import StatusServer as Configuration
from pkg.statusserver import StatusServer, setup_server


def _serves(server: StatusServer) -> bool:
    try:
        return server.check() == ""
    except NotHealthyError:
        return False


async def test_the_liveness_check_fails_only_when_a_server_that_has_served_ends(tmp_path: Path) -> None:
    for file, content in zip(("tls.crt", "tls.key"), SelfSigned().pair(), strict=True):
        (tmp_path / file).write_bytes(content)
    mgr = ctrl.Manager(
        rest.Config("http://127.0.0.1:1"),
        ctrl.Options(webhook_host="127.0.0.1"),
        transport=rest.FakeTransport(lambda _request: rest.FakeResponse(404)),
    )
    certificates = CertWatcher(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = setup_server(mgr, Configuration(port=0), certificates, serving.TLSOptions(), probes_of_v2_4=True)
    server.check_alive()
    with pytest.raises(NotHealthyError, match="has not been started yet"):
        server.check()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        with anyio.fail_after(10):
            while not _serves(server):  # noqa: ASYNC110  # the server has no event
                await anyio.sleep(0.01)
        server.check_alive()
        tasks.cancel_scope.cancel()

    with pytest.raises(NotHealthyError, match="has ended"):
        server.check_alive()
