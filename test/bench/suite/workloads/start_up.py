# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""From the start of the manager's process to its first reconcile, on a cluster that is empty but for one TrainJob.

The reconcile is seen by its JobSet. The alternative is a process that imports kubernetes-asyncio and ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
import yaml
from controller_runtime import client, rest, webhook
from controller_runtime.apis.core.v1 import Namespace
from controller_runtime.apis.machinery.object import ObjectMeta
from controller_runtime.envtest import Binaries, Environment, apply_manifests
from controller_runtime.rest import request as requests
from harness import figures, measure

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.localcluster import contents
from pkg.localcluster.tools import JOBSET
from pkg.offline import shipped

_CONFIGURATION: Final = """
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
metrics: {{bindAddress: '0'}}
health: {{healthProbeBindAddress: '0'}}
webhook: {{certDir: '{folder}'}}
certManagement: {{enable: false}}
"""
_RUNTIME: Final = "torch-distributed"


async def run(rounds: int) -> list[figures.Figure]:
    """Measure on an API server of its own."""
    started: list[measure.Spent] = []
    imported: list[measure.Spent] = []
    binaries = await Binaries().locate(JOBSET)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Environment(crds=contents.crds(binaries[JOBSET.name])) as environment,
            rest.Transport(environment.config) as transport,
        ):
            live = client.LiveClient(transport, rest.RESTMapper(transport))
            await live.create(Namespace(metadata=ObjectMeta(name=contents.TRAINER_NAMESPACE)))
            runtimes = [
                each for each in shipped.manifests("runtimes") if each["metadata"]["name"] == _RUNTIME
            ]
            await apply_manifests(live, runtimes, owner="bench")
            arguments = _arguments(Path(folder), environment)
            for number in range(rounds + 1):
                begun = await _start(live, arguments, f"first-{number}")
                other = _import()
                if number:  # the first fills the file cache
                    started.append(begun)
                    imported.append(other)
    found = []
    for what, unit, target in (("wall", "s", "≤ 1.5"), ("cpu", "CPU s", "")):
        ours, theirs = ([getattr(each, what) for each in arm] for arm in (started, imported))
        alternative = ("import kubernetes_asyncio", theirs)
        found.append(figures.figure(f"start_up.{what}", unit, ours, alternative=alternative, target=target))
    return found


def _arguments(folder: Path, environment: Environment) -> list[str]:
    kubeconfig, configuration = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(yaml.safe_dump(environment.kubeconfig_for("admin", ["system:masters"])))
    kubeconfig.chmod(0o600)
    certificate, key = webhook.SelfSigned("localhost").pair()
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    configuration.write_text(_CONFIGURATION.format(folder=folder))
    return ["-m", "pkg.app", f"--config={configuration}", f"--kubeconfig={kubeconfig}"]


async def _start(live: client.LiveClient, arguments: list[str], name: str) -> measure.Spent:
    job = TrainJob.from_dict(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"runtimeRef": {"name": _RUNTIME}}}
    )
    await live.create(job)
    assert JobSet.resource is not None
    watch = requests.watch(
        JobSet.resource, namespace="default", resource_version=(await live.list(JobSet)).resource_version
    )
    response = await live.transport.send(watch)
    began = time.perf_counter()
    with _process(arguments) as process:
        with anyio.fail_after(60):
            async for _ in response.lines():
                break
        spent = measure.Spent(time.perf_counter() - began, _cpu(process.cpu_times()))
    await response.close()
    # Nobody collects garbage here.
    await live.delete(JobSet(metadata=ObjectMeta(namespace="default", name=name)))
    await live.delete(job)
    return spent


def _import() -> measure.Spent:
    began = time.perf_counter()
    before = psutil.Process().cpu_times()
    subprocess.run([sys.executable, "-c", "import kubernetes_asyncio"], cwd=measure.ROOT, check=True)
    after = psutil.Process().cpu_times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return measure.Spent(time.perf_counter() - began, used)


@contextmanager
def _process(arguments: list[str]) -> Iterator[Any]:
    with tempfile.TemporaryFile() as log:
        process = psutil.Popen(
            [sys.executable, *arguments],
            cwd=measure.ROOT,
            env=measure.child_environment(),
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
            raise
        finally:
            process.terminate()
            process.wait()


def _cpu(times: Any) -> float:
    return float(times.user + times.system)
