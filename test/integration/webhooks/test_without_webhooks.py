# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager outside the cluster, as docs/own-cluster.md starts it, leaves another manager's webhooks alone."""

import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.core.v1 import Namespace, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment, eventually, free_ports
from controller_runtime.machinery import Unstructured
from controller_runtime.rest import RESTMapper, Transport
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at
from testkit.processes import ROOT, is_ready, running

pytestmark = pytest.mark.integration

SECRET = (manifests.TRAINER_NAMESPACE, "kubeflow-trainer-webhook-cert")
HOOKS = ("", "validator.trainer.kubeflow.org")


@pytest.fixture
async def live() -> AsyncIterator[tuple[Environment, LiveClient]]:
    """Yield a cluster with the Secret and the webhook configuration of a manager that runs there."""
    binaries = await Binaries().locate(JOBSET)
    async with (
        Environment(crds=manifests.crds(binaries[JOBSET.name])) as server,
        Transport(server.config) as transport,
    ):
        client = LiveClient(transport, RESTMapper(transport))
        await client.create(Namespace.from_dict({"metadata": {"name": SECRET[0]}}))
        metadata = {"name": SECRET[1], "namespace": SECRET[0]}
        await client.create(Secret.from_dict({"metadata": metadata, "data": {"tls.crt": "dGhlaXJz"}}))
        (hooks,) = [
            each
            for each in manifests.trainer_webhooks("https://127.0.0.1:1", b"theirs")
            if each["metadata"]["name"] == HOOKS[1]
        ]
        for hook in hooks["webhooks"]:  # no manager answers the API server's calls
            hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
        await client.create(Unstructured.wrap(hooks))
        yield server, client


def documented_configuration() -> str:
    """Return the Configuration that the documents show for a manager outside the cluster."""
    found: list[str] = [
        block
        for block in re.findall(
            r"^```yaml\n(.*?)^```", (ROOT / "docs/own-cluster.md").read_text(), re.DOTALL | re.MULTILINE
        )
        if "kind: Configuration" in block
    ]
    assert len(found) == 1
    return found[0]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(120)
async def test_a_manager_outside_the_cluster_runs_jobs_and_touches_no_certificate(
    live: tuple[Environment, LiveClient], tmp_path: Path
) -> None:
    server, client = live
    health, webhook = free_ports(2)
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(server.kubeconfig_for("admin", ["system:masters"])))
    (tmp_path / "kubeconfig").chmod(0o600)
    (tmp_path / "config.yaml").write_text(
        # Other tests may listen at the usual ports.
        documented_configuration()
        + f"health: {{healthProbeBindAddress: '127.0.0.1:{health}'}}\nwebhook: {{port: {webhook}}}\n"
    )
    before = (
        (await client.get(Secret, SECRET)).to_dict(),
        (await client.get(ValidatingWebhookConfiguration, HOOKS)).to_dict(),
    )
    flags = ["--kubeconfig", tmp_path / "kubeconfig", f"--config={tmp_path / 'config.yaml'}"]
    environ = {"PYTHONPATH": f"{ROOT / 'trainerctl'}:{ROOT}"}
    command = [sys.executable, "-m", "trainerctl", "run", *flags]
    with running(command, tmp_path / "log", cwd=tmp_path, environ=environ):
        await eventually(lambda: is_ready(health), timeout=60, reason="the manager is ready")
        await client.create(written_runtime("default"))
        await client.create(written_train_job("default", "runtime"))
        await job_set_at(client, ("default", "job"), timeout=30)
        assert not listens(webhook)
    after = (
        (await client.get(Secret, SECRET)).to_dict(),
        (await client.get(ValidatingWebhookConfiguration, HOOKS)).to_dict(),
    )
    assert after == before
    secrets = await client.list(Secret)
    assert [secret.key.name for secret in secrets] == [SECRET[1]]
