# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""kustomize, an API server that no other test uses, and the manifests of other projects that ours need."""

import functools
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from controller_runtime.envtest import Environment
from controller_runtime.testing.pytest_envtest import running

from testkit import programs

Manifest = dict[str, Any]


@pytest.fixture(scope="session")
def kustomize() -> Callable[[Path], list[Manifest]]:
    """Return a function that builds a folder, as ``kubectl apply -k`` does, and returns the objects in order."""
    program = anyio.run(programs.located, programs.KUSTOMIZE)

    def build(folder: Path) -> list[Manifest]:
        run = subprocess.run(
            [str(program), "build", str(folder)],
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


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copy the pinned ``config`` folders of JobSet and LeaderWorkerSet; return them by their names in ``config/third-party``."""
    made = {}
    for name, module in programs.MODULES.items():
        made[name] = tmp_path_factory.mktemp(name) / "config"
        shutil.copytree(module.find() / "config", made[name])
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
    return Path(shutil.copytree(programs.TRAINER.find(), tmp_path_factory.mktemp("upstream") / "trainer"))


@pytest.fixture(scope="session")
def monitoring_crds() -> list[Path]:
    """Return the CRDs of ServiceMonitor and PrometheusRule that the prometheus-operator publishes."""
    folder = programs.PROMETHEUS_OPERATOR.find() / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{name}.yaml" for name in ("servicemonitors", "prometheusrules")]


@pytest.fixture(scope="session")
def bare_cluster() -> Iterator[Environment]:
    """Yield an API server for this folder: a webhook configuration without a manager would block other tests."""
    with running(Environment()) as environment:
        yield environment
