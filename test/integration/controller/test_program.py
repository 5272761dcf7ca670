# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program as operators see it: a problem is one line and an exit code, and never a traceback."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import HOST, Binaries, Environment, eventually, free_ports
from controller_runtime.rest import RESTMapper, Transport
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at
from testkit.processes import ROOT, answer, manager_flags, running_manager

pytestmark = pytest.mark.integration

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


def run(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "cmd" / "trainer-controller-manager" / "main.py"), *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()


def kubeconfig(path: Path, server: str, **user: str) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_bad_configuration_is_one_line_that_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "webhook:\n  prot: 1\n")
    said = f"trainer-controller-manager: {file}: line 4: webhook.prot: unknown key"
    assert run(f"--config={file}") == (1, [said])


def test_no_cluster_at_all_is_one_line() -> None:
    code, (line,) = run()
    assert code == 1
    assert "no kubeconfig is given" in line


def test_an_api_server_that_is_not_there_is_waited_for_briefly_and_then_named(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    given = kubeconfig(tmp_path / "kubeconfig", server, token="any")
    said = f"trainer-controller-manager: the API server cannot be reached: {server}: connection refused"
    assert run(f"--kubeconfig={given}") == (1, [said])
    assert time.monotonic() - began < 20


def test_credentials_that_are_refused_are_named_with_the_server(
    tmp_path: Path, control_plane: Environment
) -> None:
    server = control_plane.config.host
    given = kubeconfig(tmp_path / "kubeconfig", server, token="nobody")
    said = f"trainer-controller-manager: the API server does not accept the credentials: {server}"
    assert run(f"--kubeconfig={given}") == (1, [said])


def test_a_certificate_that_was_promised_and_is_not_there_is_named(
    tmp_path: Path, trainer_control_plane: Environment
) -> None:
    flags = manager_flags(
        tmp_path,
        trainer_control_plane.kubeconfig_for("trainer-under-test"),
        certManagement={"enable": False},
        webhook={"certDir": str(tmp_path / "none")},
    )
    code, lines = run(*flags)
    assert code == 1
    assert f"{tmp_path / 'none' / 'tls.crt'}: No such file or directory" in lines[-1]


async def test_controllers_do_not_wait_for_certificates_that_cannot_be_had_and_readiness_does(
    start_manager: Any, namespace: str, live_client: LiveClient
) -> None:
    """A Secret that is immutable and empty cannot be filled until it is deleted."""
    metadata = {"name": namespace, "namespace": manifests.TRAINER_NAMESPACE}
    secret = await live_client.create(Secret.from_dict({"metadata": metadata, "immutable": True}))
    (health,) = free_ports(1)
    start_manager(
        health={"healthProbeBindAddress": f"{HOST}:{health}"}, certManagement={"webhookSecretName": namespace}
    )
    await live_client.create(written_runtime(namespace, "plain"))
    await live_client.create(written_train_job(namespace, "plain"))
    await job_set_at(live_client, (namespace, "job"), timeout=30)

    async def answers(status: int, words: str) -> bool:
        found, text = await answer(f"http://{HOST}:{health}/readyz/readyz")
        return found == status and words in text

    waits = "certificates are not ready"
    await eventually(lambda: answers(500, waits), reason="readiness waits for the certificates")
    await live_client.delete(secret)
    await eventually(lambda: answers(200, ""), timeout=20, reason="the webhooks are served")


async def test_a_missing_crd_leaves_the_manager_running_and_readiness_names_it_until_it_comes(
    tmp_path: Path,
) -> None:
    binaries = await Binaries().locate(JOBSET)
    crds = manifests.crds(binaries[JOBSET.name])
    ours = [each for each in crds if each["spec"]["group"] == "trainer.kubeflow.org"]
    async with Environment(crds=ours) as server, Transport(server.config) as transport:
        client = LiveClient(transport, RESTMapper(transport))
        (health, port) = free_ports(2)
        server.control_plane.authority.server("webhooks", [HOST]).write(tmp_path)
        flags = manager_flags(
            tmp_path,
            server.kubeconfig_for("admin", ["system:masters"]),
            certManagement={"enable": False},
            health={"healthProbeBindAddress": f"{HOST}:{health}"},
            webhook={"host": HOST, "port": port, "certDir": str(tmp_path)},
        )

        async def is_ready(*, degraded: bool) -> bool:
            status, text = await answer(f"http://{HOST}:{health}/readyz")
            return status == 200 and ("JobSet.jobset.x-k8s.io is degraded" in text) is degraded

        with running_manager(flags, tmp_path / "log"):
            await eventually(
                lambda: is_ready(degraded=True), timeout=30, reason="readiness names the missing kind"
            )
            await client.create(written_runtime("default", "plain"))
            await client.create(written_train_job("default", "plain"))
            await server.install_crds(*crds)
            await job_set_at(client, ("default", "job"))
            await eventually(lambda: is_ready(degraded=False), timeout=30, reason="readiness is silent again")
