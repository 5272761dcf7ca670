# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the manager with a token, over TLS, and can answer our alerts and our dashboard."""

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime import Manager
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually, free_ports
from controller_runtime.metrics import with_authentication_and_authorization
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.tools import PROMETHEUS as PROMETHEUS_TOOL

from testkit import programs
from testkit.builders import written_train_job
from testkit.clusters import job_set_at
from testkit.processes import ROOT, answer, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROMETHEUS = ROOT / "config" / "prometheus"
READER = ROOT / "config" / "metrics-authorization" / "reader_role.yaml"
# Metrics without samples until an error occurs or a webhook is called.
SILENT = (
    "kind_degraded",
    "leader_election",
    "skipped_objects",
    "drift_healed",
    "webhook",
    "reconcile_errors",
)


@pytest.fixture
async def token(control_plane: Environment, live_client: LiveClient, namespace: str) -> str:
    """Return the token of a ServiceAccount with the shipped role for scrapers."""
    (role,) = yaml.safe_load_all(READER.read_text())
    account = {"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}
    await apply_manifests(live_client, [role, role_binding(role["metadata"]["name"], account)], owner="test")
    config = await control_plane.add_service_account(namespace, "prometheus")
    return (await config.credentials.headers())["Authorization"].removeprefix("Bearer ")


@contextmanager
def prometheus(program: Path, folder: Path, target: int, token: str) -> Iterator[str]:
    """Run Prometheus as our ServiceMonitor would have it configured; yield its address."""
    (monitor,) = yaml.safe_load_all((PROMETHEUS / "service_monitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["endpoints"]
    (rules,) = yaml.safe_load_all((PROMETHEUS / "rules.yaml").read_text())
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules["spec"]))
    (folder / "token").write_text(token)
    scrape = {
        "job_name": "trainer",
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
        "authorization": {"credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
    }
    (folder / "prometheus.yaml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(folder / "rules.yaml")],
                "scrape_configs": [scrape],
            }
        )
    )
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = {
        "config.file": folder / "prometheus.yaml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": address,
    }
    command = [program, *(f"--{name}={value}" for name, value in flags.items())]
    with running(command, folder / "prometheus.log", cwd=folder):
        yield f"http://{address}"


async def ask(address: str, path: str, **parameters: str) -> Any:
    status, text = await answer(f"{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
    if status != 200:
        raise OSError(text)  # not ready yet
    return json.loads(text)["data"]


def dashboard() -> list[str]:
    panels = json.loads((PROMETHEUS / "dashboard.json").read_text())["panels"]
    texts = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "1m").replace("$controller", ".*") for text in texts]


@pytest.mark.usefixtures("may_review")
async def test_prometheus_reads_everything_it_is_told_to_show(
    run_manager: Callable[..., AbstractAsyncContextManager[Manager]],
    live_client: LiveClient,
    namespace: str,
    torch_runtime: str,
    token: str,
    tmp_path: Path,
) -> None:
    secure = {
        "metrics_bind_address": "127.0.0.1:0",
        "metrics_secure": True,
        "metrics_filter": with_authentication_and_authorization,
    }
    program = await programs.located(PROMETHEUS_TOOL)
    async with run_manager(**secure) as mgr:
        await live_client.create(written_train_job(namespace, torch_runtime, kind=None))
        await job_set_at(live_client, (namespace, "job"))
        with prometheus(program, tmp_path, mgr.metrics_server.port, token) as address:

            async def scraped() -> bool:
                query = 'count_over_time(up{job="trainer"}[1m]) >= 3 and up{job="trainer"} == 1'
                try:
                    return bool((await ask(address, "query", query=query))["result"])
                except OSError:  # it does not listen yet
                    return False

            await eventually(scraped, timeout=60, reason="Prometheus has scraped the manager three times")
            for expression in dashboard():
                data = await ask(address, "query", query=expression)
                silent = any(word in expression for word in SILENT)
                assert silent or data["result"], expression
            jobs = await ask(address, "query", query='kubeflow_trainer_trainjobs{condition="Running"}')
            assert float(jobs["result"][0]["value"][1]) >= 1
            await no_alert(address)


async def no_alert(address: str) -> None:
    """Check that each alert is evaluated without an error, and that none is raised."""

    async def evaluated() -> bool:
        rules = [rule for group in (await ask(address, "rules"))["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} == {"ok"}, rules
        assert {rule["name"]: rule["state"] for rule in rules} == {rule["name"]: "inactive" for rule in rules}
        written = re.findall(r"- alert: (\w+)", (PROMETHEUS / "rules.yaml").read_text())
        return [rule["name"] for rule in rules] == written

    await eventually(evaluated, timeout=30, reason="every alert was evaluated and none is raised")
