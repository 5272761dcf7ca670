# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server authorizes readers of our manager's metrics, under the shipped roles."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from controller_runtime import Manager, manager
from controller_runtime.apis.authentication.v1 import TokenRequest
from controller_runtime.apis.core.v1 import ServiceAccount
from controller_runtime.apis.rbac.v1 import ClusterRole, ClusterRoleBinding
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually

from pkg import config

pytestmark = pytest.mark.integration
RBAC = "rbac.authorization.k8s.io"

Account = Callable[..., Awaitable[str]]


def settings() -> manager.Options:
    cfg = config.load()
    cfg.metrics.require_authorization = True
    cfg.metrics.bind_address = "127.0.0.1:0"
    cfg.health.health_probe_bind_address = "0"
    return config.manager_options(cfg)


@pytest.fixture
def account(live_client: LiveClient, namespace: str) -> Account:
    """Return a function that creates a ServiceAccount, which may get /metrics if ``granted``, and returns its token."""

    async def make(name: str, *, granted: bool) -> str:
        metadata = {"name": name, "namespace": namespace}
        made = await live_client.create(ServiceAccount.from_dict({"metadata": metadata}))
        if granted:
            rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
            await live_client.create(ClusterRole.from_dict({"metadata": {"name": namespace}, "rules": rules}))
            binding = {
                "metadata": {"name": namespace},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace},
                "subjects": [{"kind": "ServiceAccount", **metadata}],
            }
            await live_client.create(ClusterRoleBinding.from_dict(binding))
        issued = await live_client.subresource("token").create(made, TokenRequest())
        return issued.status.token or ""

    return make


async def scrape(mgr: Manager, token: str = "") -> tuple[int, str]:
    """Return status and body of one scrape, over TLS."""

    def ask() -> tuple[int, str]:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"https://127.0.0.1:{mgr.metrics_server.port}/metrics")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=trusting, timeout=15) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await anyio.to_thread.run_sync(ask)


@pytest.mark.usefixtures("may_review")
async def test_only_a_service_account_that_may_get_the_path_reads_metrics(
    run_manager: Callable[..., AbstractAsyncContextManager[Manager]],
    account: Account,
    namespace: str,
) -> None:
    granted, other = await account("granted", granted=True), await account("other", granted=False)
    asked = settings()
    async with run_manager(
        metrics_bind_address=asked.metrics_bind_address,
        metrics_secure=asked.metrics_secure,
        metrics_filter=asked.metrics_filter,
    ) as mgr:

        async def read() -> str:
            status, text = await scrape(mgr, granted)
            return text if status == 200 else ""

        # The API server's authorizer observes new roles a moment later.
        text = await eventually(read, timeout=30, reason="the account may read the metrics")
        assert "controller_runtime_reconcile_total" in text
        name = f"system:serviceaccount:{namespace}:other"
        assert await scrape(mgr, other) == (403, f"Authorization denied for user {name}\n")
        assert await scrape(mgr) == (401, "Unauthorized\n")
        assert await scrape(mgr, granted[:-8] + "AAAAAAAA") == (401, "Unauthorized\n")


async def test_metrics_stay_closed_when_the_manager_may_not_ask(
    control_plane: Environment, account: Account
) -> None:
    granted = await account("granted", granted=True)
    mgr = Manager(await control_plane.add_user("powerless"), settings())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mgr.start)
        with anyio.fail_after(15):
            await mgr.metrics_server.ready()
        assert await scrape(mgr, granted) == (500, "Authentication failed\n")
        mgr.stop()
