# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""kustomize, an API server that no other test uses, and the manifests of other projects that ours need."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.envtest import Binaries, Environment, PlainProgress, Tool, ToolGroup, cache_directory
from controller_runtime.envtest.gotoolchain import find_go
from controller_runtime.testing.pytest_envtest import running

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "test" / "tools"
JOBSET_MODULE = ROOT / "trainerctl" / "trainerctl" / "localcluster" / "tools" / "jobset"

Manifest = dict[str, Any]


@pytest.fixture(scope="session")
def kustomize() -> Callable[[Path], list[Manifest]]:
    """Return a function that builds a folder, as ``kubectl apply -k`` does, and returns the objects in order."""
    group = ToolGroup(TOOLS / "kustomize", "sigs.k8s.io/kustomize/kustomize/v5")
    tool = Tool("kustomize", group, "sigs.k8s.io/kustomize/kustomize/v5")
    binaries = anyio.run(Binaries(progress=PlainProgress(sys.stderr)).locate, tool)

    def build(folder: Path) -> list[Manifest]:
        run = subprocess.run(
            [str(binaries["kustomize"].path), "build", str(folder)],
            env={"HOME": "/nonexistent", "PATH": "/nonexistent"},  # no git
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert not run.stderr, run.stderr
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [document for document in yaml.load_all(run.stdout, Loader=loader) if document]

    return build


async def module_directory(folder: Path, module: str) -> Path:
    """Return the folder of a module that ``folder``'s go.mod pins, in Go's module cache; download it if it is not there."""
    go = await find_go((1, 24), cache_directory(), PlainProgress(sys.stderr), os.environ)
    for arguments in (["mod", "download", module], ["list", "-m", "-f", "{{.Dir}}", module]):
        out = await go.run(arguments, cwd=folder)
    return Path(out[0])


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copy the pinned ``config`` folders of JobSet and LeaderWorkerSet; return them by their names in ``config/third-party``."""
    made = {}
    for name, (folder, module) in {
        "jobset": (JOBSET_MODULE, "sigs.k8s.io/jobset"),
        "leaderworkerset": (TOOLS / "lws", "sigs.k8s.io/lws"),
    }.items():
        source = anyio.run(module_directory, folder, module)
        made[name] = writable_copy(source / "config", tmp_path_factory.mktemp(name) / "config")
    return made


@pytest.fixture(scope="session")
def releases(
    kustomize: Callable[[Path], list[Manifest]],
    third_party: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Serve the file that each project releases as ``NAME.yaml``; yield the address."""
    folder = tmp_path_factory.mktemp("releases")
    for name, source in third_party.items():
        text = yaml.dump_all(
            kustomize(source / "default"), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        )
        (folder / f"{name}.yaml").write_text(
            re.sub(r"\S+/k8s-staging-images/(\w+)/\w+:\S+", r"registry.k8s.io/\1/\1:v0", text)
        )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the manifests and the Helm chart of Kubeflow Trainer v2.1.0; return the folder that contains both."""
    source = anyio.run(module_directory, TOOLS / "trainer", "github.com/kubeflow/trainer/v2")
    home = tmp_path_factory.mktemp("upstream")
    for name in ("manifests", "charts"):
        writable_copy(source / name, home / name)
    return home


def writable_copy(source: Path, target: Path) -> Path:
    """Copy a folder of Go's module cache, which is read-only."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@pytest.fixture(scope="session")
def monitoring_crds() -> list[Path]:
    """Return the CRDs of ServiceMonitor and PrometheusRule that the prometheus-operator publishes."""
    module = "github.com/prometheus-operator/prometheus-operator"
    source = anyio.run(module_directory, TOOLS / "prometheus-operator", module)
    folder = source / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{name}.yaml" for name in ("servicemonitors", "prometheusrules")]


@pytest.fixture(scope="session")
def bare_cluster() -> Iterator[Environment]:
    """Yield an API server for this folder: a webhook configuration without a manager would block other tests."""
    with running(Environment()) as environment:
        yield environment
