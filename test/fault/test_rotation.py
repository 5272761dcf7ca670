# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates rotate under load, in three replicas that start with an empty Secret.

With FAULT_SECONDS=30 there are 20 rotations.
"""

import contextlib
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.apis.admissionregistration.v1 import ValidatingWebhookConfiguration
from controller_runtime.apis.core.v1 import Namespace, Secret
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Binaries, Environment, apply_manifests, eventually, free_ports
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import Config, Request, RESTMapper, Transport, TransportError
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from trainerctl.localcluster import manifests
from trainerctl.localcluster.access import role_binding
from trainerctl.localcluster.tools import JOBSET

from pkg import shipped
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from pkg.util.cert import Material

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
REPLICAS = 3
RATE = 200
CLIENTS = 32
QUIET = 5.0
"""Seconds of load without rotations, for comparison."""
SECRET = Secret.from_dict(
    {"metadata": {"name": "kubeflow-trainer-webhook-cert", "namespace": manifests.TRAINER_NAMESPACE}}
)
USER = "rotating-manager"


@pytest.fixture
async def ports(control_plane: Environment, client: LiveClient) -> list[int]:
    """Install Trainer with a webhook for each replica, so that each admission calls all of them.

    Return the ports of the replicas' webhooks, followed by those of their health probes.
    """
    binaries = await Binaries().locate(JOBSET)
    await control_plane.install_crds(*manifests.crds(binaries[JOBSET.name]))
    with contextlib.suppress(StatusError):
        await client.create(Namespace.from_dict({"metadata": {"name": manifests.TRAINER_NAMESPACE}}))
    (role,) = [each for each in shipped.manifests("rbac") if each["kind"] == "ClusterRole"]
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    binding = role_binding(role["metadata"]["name"], user)
    await apply_manifests(client, [role, binding], owner="test")
    chosen = free_ports(2 * REPLICAS)
    (manifest,) = [
        each
        for each in manifests.trainer_webhooks("https://127.0.0.1", b"")
        if each["kind"] == ValidatingWebhookConfiguration.gvk.kind
    ]
    (original,) = [
        hook for hook in manifest["webhooks"] if hook["clientConfig"]["url"].endswith("v1alpha1-trainjob")
    ]
    path = original["clientConfig"]["url"].rpartition("/")[2]
    manifest["webhooks"] = [
        {
            **original,
            "name": f"r{port}.{original['name']}",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}"},
        }
        for port in chosen[:REPLICAS]
    ]
    await client.create(SECRET)
    await client.create(ValidatingWebhookConfiguration.from_dict(manifest))
    return chosen


@pytest.fixture
def managers(
    control_plane: Environment, ports: list[int], tmp_path: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start three replicas together; kill them after the test."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(control_plane.kubeconfig_for(USER)))
    kubeconfig.chmod(0o600)
    started = []
    for number in range(REPLICAS):
        config = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{ports[REPLICAS + number]}"},
            "webhook": {"host": "127.0.0.1", "port": ports[number]},
            "leaderElection": {"leaderElect": True, "resourceNamespace": manifests.TRAINER_NAMESPACE},
        }
        file = tmp_path / f"config-{number}.yaml"
        file.write_text(yaml.safe_dump(config))
        with (tmp_path / f"manager-{number}.log").open("wb") as log:
            arguments = [f"--config={file}", f"--kubeconfig={kubeconfig}"]
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "pkg.app", *arguments], cwd=ROOT, stdout=log, stderr=log
                )
            )
    yield started
    for process in started:
        process.kill()
        process.wait()


@dataclass
class Load:
    """Sends admissions at a steady rate, and counts their results."""

    client: LiveClient
    job: TrainJob
    admitted: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    longest_pause: float = 0.0
    """The longest time without an admission."""
    last: float = field(default_factory=time.monotonic)

    async def one(self) -> None:
        began = time.monotonic()
        try:
            await self.client.create(self.job, dry_run=True)
            now = time.monotonic()
            self.longest_pause, self.last = max(self.longest_pause, now - self.last), now
            self.admitted += 1
        except (StatusError, TransportError) as error:
            self.failures.append(str(error))
        self.slowest = max(self.slowest, time.monotonic() - began)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send admissions at RATE during the block, with CLIENTS at a time."""
        began, asked, stopping = time.monotonic(), 0, False

        async def ask() -> None:
            nonlocal asked
            while not stopping:
                if (time.monotonic() - began) * RATE < asked:
                    await anyio.sleep(0.005)
                    continue
                asked += 1
                await self.one()

        async with anyio.create_task_group() as tasks:
            for _ in range(CLIENTS):
                tasks.start_soon(ask)
            yield
            stopping = True


async def is_ready(port: int) -> bool:
    async with Transport(Config(f"http://127.0.0.1:{port}")) as probe:
        try:
            response = await probe.send(Request("GET", "/readyz"))
        except TransportError:
            return False
        await response.read()
        return response.status == 200


async def authority(client: LiveClient) -> bytes:
    return Material.from_data((await client.get(Secret, SECRET.key)).data or {}).ca_crt


def serves(port: int, ca: bytes) -> bool:
    """Return True if a replica serves a certificate that ``ca`` has signed."""
    try:
        served = ssl.get_server_certificate(("127.0.0.1", port))
        x509.load_pem_x509_certificate(served.encode()).verify_directly_issued_by(
            x509.load_pem_x509_certificate(ca)
        )
    except (OSError, ValueError, InvalidSignature):  # nothing is served, or another authority signed it
        return False
    return True


async def test_no_admission_fails_while_certificates_rotate(
    control_plane: Environment,
    client: LiveClient,
    namespace: str,
    ports: list[int],
    managers: list[subprocess.Popen[bytes]],
    figure: Any,
    outage_seconds: float,
) -> None:
    serving, health = ports[:REPLICAS], ports[REPLICAS:]
    pod = {"spec": {"containers": [{"name": "node", "image": "busybox"}]}}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod},
    }
    jobs = [{"name": "node", "replicas": 1, "template": template}]
    runtime = {
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    await client.create(TrainingRuntime.from_dict(runtime))
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "plain"}
    job = TrainJob.from_dict(
        {"metadata": {"name": "job", "namespace": namespace}, "spec": {"runtimeRef": ref, "suspend": True}}
    )

    for port in health:
        await eventually(lambda port=port: is_ready(port), timeout=60, reason="replicas are ready")  # type: ignore[misc]  # bound
    began = time.monotonic()

    async def admitted() -> bool:
        try:
            await client.create(job, dry_run=True)
        except StatusError:
            return False
        return True

    await eventually(admitted, timeout=20, reason="a TrainJob is admitted")
    figure("empty Secret: first TrainJob admitted after readiness", time.monotonic() - began, at_most=5)
    first = await authority(client)
    assert first.count(b"BEGIN CERTIFICATE") == 1
    figure(
        f"{REPLICAS} replicas started together: not on the one authority",
        sum(not serves(port, first) for port in serving),
        at_most=0,
        unit="replicas",
    )

    rotations = 20 if outage_seconds >= 30 else 3
    seen = {first}
    async with Transport(control_plane.config) as transport:
        quiet = Load(LiveClient(transport, RESTMapper(transport)), job)
        async with quiet.running():
            await anyio.sleep(QUIET)
        load = Load(quiet.client, job)
        started = time.monotonic()
        async with load.running():
            for _ in range(rotations):
                await client.delete(SECRET)

                async def rotated() -> bool:
                    try:
                        ca = await authority(client)
                    except StatusError:
                        return False
                    if ca in seen:
                        return False
                    return all([await anyio.to_thread.run_sync(serves, port, ca) for port in serving])

                await eventually(
                    rotated, timeout=60, interval=0.5, reason="every replica serves with the new authority"
                )
                seen.add(await authority(client))
        took = time.monotonic() - started
    assert len(seen) == rotations + 1
    assert all(process.poll() is None for process in managers)
    before, now = quiet.admitted / QUIET, load.admitted / took
    figure(
        f"of {before:.0f} admissions a second, missing while rotating", 1 - now / before, at_most=0.5, unit=""
    )
    figure("longest time without an admission while rotating", load.longest_pause, at_most=2)
    figure("slowest admission while rotating", load.slowest, at_most=3)
    figure(
        f"{rotations} forced rotations, {load.admitted} admissions through {REPLICAS} replicas: failed",
        len(load.failures),
        at_most=0,
        unit="admissions",
    )
