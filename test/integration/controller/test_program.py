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
from controller_runtime.envtest import Binaries, Environment, eventually, free_ports
from controller_runtime.rest import Config, Request, RESTMapper, Transport, TransportError
from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET

from testkit.builders import written_runtime, written_train_job
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
QUIET = HEAD + "metrics: {bindAddress: '0'}\nhealth: {healthProbeBindAddress: '0'}\n"


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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--nope"], "flag provided but not defined: -nope"),
        (["--zap-log-level=loud"], 'invalid value "loud" for flag -zap-log-level: invalid log level "loud"'),
        (["stray"], "unexpected argument: stray"),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(arguments: list[str], line: str) -> None:
    assert run(*arguments) == (2, [f"trainer-controller-manager: {line}"])


def test_a_bad_configuration_is_one_line_that_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "webhook:\n  prot: 1\n")
    assert run(f"--config={file}") == (
        1,
        [f"trainer-controller-manager: {file}: line 4: webhook.prot: unknown key"],
    )
    file.unlink()
    code, (line,) = run(f"--config={file}")
    assert code == 1
    assert line == f"trainer-controller-manager: {file}: cannot be read: No such file or directory"


def test_no_cluster_at_all_is_one_line(tmp_path: Path) -> None:
    code, (line,) = run()
    assert code == 1
    assert "no kubeconfig is given" in line
    code, (line,) = run(f"--kubeconfig={tmp_path / 'missing'}")
    assert code == 1
    assert str(tmp_path / "missing") in line


def test_an_api_server_that_is_not_there_is_waited_for_briefly_and_then_named(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    code, (line,) = run(f"--kubeconfig={kubeconfig(tmp_path / 'kubeconfig', server, token='any')}")
    assert code == 1
    assert (
        line == f"trainer-controller-manager: the API server cannot be reached: {server}: connection refused"
    )
    assert time.monotonic() - began < 20


def test_credentials_that_are_refused_are_named_with_the_server(
    tmp_path: Path, control_plane: Environment
) -> None:
    server = control_plane.config.host
    code, (line,) = run(f"--kubeconfig={kubeconfig(tmp_path / 'kubeconfig', server, token='nobody')}")
    assert code == 1
    assert line == f"trainer-controller-manager: the API server does not accept the credentials: {server}"


def test_a_certificate_that_was_promised_and_is_not_there_is_named(
    tmp_path: Path, trainer_control_plane: Environment
) -> None:
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(trainer_control_plane.kubeconfig_for("trainer-under-test"))
    )
    (tmp_path / "config.yaml").write_text(
        QUIET + f"certManagement: {{enable: false}}\nwebhook: {{certDir: {tmp_path / 'none'}}}\n"
    )
    code, lines = run(f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
    assert code == 1
    assert f"{tmp_path / 'none' / 'tls.crt'}: No such file or directory" in lines[-1]


async def test_controllers_do_not_wait_for_certificates_that_cannot_be_had_and_readiness_does(
    tmp_path: Path,
    trainer_control_plane: Environment,
    start_manager: Any,
    namespace: str,
    live_client: LiveClient,
) -> None:
    """A Secret that is immutable and empty cannot be filled until it is deleted."""
    del trainer_control_plane
    health, webhook = free_ports(2)
    secret = Secret.from_dict(
        {"metadata": {"name": namespace, "namespace": manifests.TRAINER_NAMESPACE}, "immutable": True}
    )
    await live_client.create(secret)
    file = tmp_path / "mine.yaml"
    file.write_text(
        HEAD + f"metrics: {{bindAddress: '0'}}\nhealth: {{healthProbeBindAddress: '127.0.0.1:{health}'}}\n"
        f"webhook: {{host: 127.0.0.1, port: {webhook}}}\ncertManagement: {{webhookSecretName: {namespace}}}\n"
    )
    start_manager(f"--config={file}")
    runtime, job = written_runtime("default", "plain"), written_train_job("default", "plain")
    runtime.metadata.namespace = job.metadata.namespace = namespace
    await live_client.create(runtime)
    await live_client.create(job)
    await job_set_at(live_client, (namespace, "job"), timeout=30)
    async with Transport(Config(host=f"http://127.0.0.1:{health}")) as probe:

        async def answers(status: int) -> bool:
            response = await probe.send(Request("GET", "/readyz/readyz"))
            body = await response.read()
            return response.status == status and (status == 200 or b"certificates are not ready" in body)

        await eventually(lambda: answers(500), reason="readiness waits for the certificates")
        await live_client.delete(secret)
        await eventually(lambda: answers(200), timeout=20, reason="the webhooks are served")


async def test_a_missing_crd_leaves_the_manager_running_and_readiness_names_it_until_it_comes(
    tmp_path: Path,
) -> None:
    binaries = await Binaries().locate(JOBSET)
    crds = manifests.crds(binaries[JOBSET.name])
    async with Environment(
        crds=[each for each in crds if each["spec"]["group"] == "trainer.kubeflow.org"]
    ) as server:
        port = free_ports(1)[0]
        (tmp_path / "config.yaml").write_text(
            HEAD + "metrics: {bindAddress: '0'}\ncertManagement: {enable: false}\n"
            f"health: {{healthProbeBindAddress: '127.0.0.1:{port}'}}\n"
            f"webhook: {{host: 127.0.0.1, port: {free_ports(1)[0]}, certDir: {tmp_path}}}\n"
        )
        (tmp_path / "kubeconfig").write_text(
            yaml.safe_dump(server.kubeconfig_for("admin", ["system:masters"]))
        )
        server.control_plane.authority.server("webhooks", ["127.0.0.1"]).write(tmp_path)
        arguments = [f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
        with (tmp_path / "log").open("wb") as log:
            manager = subprocess.Popen(  # noqa: ASYNC220 - started once, ended below
                [sys.executable, "-m", "pkg.app", *arguments], cwd=ROOT, stderr=log
            )
        try:
            async with (
                Transport(Config(host=f"http://127.0.0.1:{port}")) as probe,
                Transport(server.config) as transport,
            ):
                client = LiveClient(transport, RESTMapper(transport))

                async def readiness() -> str:
                    try:
                        response = await probe.send(Request("GET", "/readyz"))
                    except TransportError:
                        return ""
                    body = (await response.read()).decode()
                    return body if response.status == 200 else ""

                said = await eventually(readiness, timeout=30, reason="the manager is ready all the same")
                said = await eventually(
                    _naming(readiness, "JobSet"), reason="readiness names the missing kind"
                )
                assert "JobSet.jobset.x-k8s.io is degraded" in said
                await client.create(written_runtime("default", "plain"))
                await client.create(written_train_job("default", "plain"))
                await server.install_crds(*crds)
                await job_set_at(client, ("default", "job"))
                await eventually(_naming(readiness, "ok"), timeout=30, reason="readiness is silent again")
            assert manager.poll() is None
        finally:
            manager.terminate()
            assert manager.wait(timeout=30) == 0


def _naming(readiness: Any, word: str) -> Any:
    async def check() -> str:
        said: str = await readiness()
        return said if word in said and (word != "ok" or "degraded" not in said) else ""

    return check
