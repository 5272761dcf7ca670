# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that tests need from the Go and Python registries: programs, files of other projects, releases of the SDK.

``python -m testkit.programs`` prepares the needs of ``make test``, with ``--slow`` also those of ``make test-slow``, and
with ``--nightly`` also those of ``make test-nightly``.
Tests only find it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from controller_runtime.envtest import (
    Binaries,
    Binary,
    PlainProgress,
    Tool,
    ToolError,
    ToolGroup,
    cache_directory,
    file_lock,
)
from controller_runtime.envtest.gotoolchain import find_go
from ctrl_testkit.programs import build, say
from ctrl_testkit.small import output_of
from trainerctl.localcluster import tools as cluster

_ROOT: Final = Path(__file__).resolve().parents[1]
_TOOLS: Final = _ROOT / "test" / "tools"
_TRAINER: Final = "github.com/kubeflow/trainer/v2"
_KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5"
_KUBERNETES: Final = os.environ.get("CLUSTER_KUBERNETES", cluster.DEFAULT_KUBERNETES)
_JOBSET: Final = os.environ.get("CLUSTER_JOBSET", cluster.DEFAULT_JOBSET)

KUSTOMIZE: Final = Tool("kustomize", ToolGroup(_TOOLS / "kustomize", _KUSTOMIZE), _KUSTOMIZE)
HELM: Final = Tool("helm", ToolGroup(_TOOLS / "helm", "helm.sh/helm/v3"), "helm.sh/helm/v3/cmd/helm")
KUBECTL: Final = Tool(
    "kubectl", ToolGroup(_TOOLS / "kubectl", "k8s.io/kubernetes"), "k8s.io/kubernetes/cmd/kubectl"
)
GO_RELEASES: Final = {"2.1.0": "trainer", "2.2.1": "trainer-2.2", "2.3.0": "trainer-2.3"}
"""The folder in ``test/tools`` with the module file of each release of Trainer."""
NIGHTLY: Final = {"2.2.1", "0.4.1"}
"""The releases of Trainer and the SDK, between the oldest and the newest, that only nightly tests need."""
GO_MANAGER: Final = "trainer-controller-manager"


def go_manager(release: str) -> Tool:
    """Return the manager of a release of Trainer with its CRDs and webhooks."""
    group = ToolGroup(_TOOLS / GO_RELEASES[release], _TRAINER)
    manifests = ("manifests/base/crds/trainer*.yaml", "manifests/base/webhook/manifests.yaml")
    return Tool(GO_MANAGER, group, f"{_TRAINER}/cmd/{GO_MANAGER}", manifests=manifests)


FAST: Final = (
    *cluster.programs(_KUBERNETES, _JOBSET),
    *(cluster.JOBSETS[release] for release in (cluster.DEFAULT_JOBSET, "0.11") if release != _JOBSET),
    KUSTOMIZE,
)
"""The programs that ``make test`` needs."""
SLOW: Final = (KUBECTL, HELM, cluster.PROMETHEUS, cluster.COSCHEDULER)
"""The programs that only ``make test-slow`` needs, besides the Go managers."""


@dataclass(frozen=True)
class Module:
    """Folders of a Go module, which tests read."""

    group: ToolGroup
    folders: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The folder in the cache that contains the folders of the module."""
        return cache_directory(program="trainer-controller-manager") / "modules" / self.group.key

    def find(self) -> Path:
        """Return :attr:`path`.

        Raises:
            ToolError: the module was not prepared.
        """
        if not self.path.is_dir():
            raise ToolError(f"the files of {self.group.module} {self.group.version} are missing")
        return self.path

    async def prepare(self) -> None:
        """Copy the folders into the cache if they are not there. Go downloads the module.

        Raises:
            ToolError: Go cannot be found, or cannot download the module.
        """
        if self.path.is_dir():
            return
        go = await find_go((1, 24), cache_directory(), PlainProgress(sys.stderr), os.environ)
        out: list[str] = []
        for arguments in (["mod", "download"], ["list", "-m", "-f", "{{.Dir}}"]):
            out = await go.run([*arguments, self.group.module], cwd=self.group.directory)
        new = self.path.with_name(f"{self.path.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        for folder in self.folders:
            shutil.copytree(Path(out[0]) / folder, new / folder)
        for path in (new, *new.rglob("*")):  # files of Go's module cache are read-only
            path.chmod(0o755 if path.is_dir() else 0o644)
        new.rename(self.path)
        say(f"{self.group.module} {self.group.version}: its files are ready")


MODULES: Final = {
    "jobset": Module(cluster.JOBSETS[cluster.DEFAULT_JOBSET].group, ("config",)),
    "leaderworkerset": Module(ToolGroup(_TOOLS / "lws", "sigs.k8s.io/lws"), ("config",)),
}
"""The modules whose files ``make test`` needs."""
TRAINER: Final = Module(go_manager("2.1.0").group, ("manifests", "charts"))
PROMETHEUS_OPERATOR: Final = Module(
    ToolGroup(_TOOLS / "prometheus-operator", "github.com/prometheus-operator/prometheus-operator"),
    ("example/prometheus-operator-crd",),
)

SDKS: Final = {"0.2.0": "2.1.0", "0.3.1": "2.1.0", "0.4.1": "2.2.1", "0.5.0": "2.3.0"}
"""Releases of the Kubeflow SDK, and the release of kubeflow-trainer-api for each.

Before 0.4, the SDK requires only that kubeflow-trainer-api is at least 2.0, but with 2.2 it cannot read its runtimes.
"""


def sdk_python(release: str) -> Path:
    """Return the interpreter of the virtual environment with a release of the SDK.

    Raises:
        ToolError: the release is not installed.
    """
    venv = _sdk(release)
    if not (venv / "installed").exists():
        raise ToolError(f"kubeflow {release} is not installed in {venv}")
    return venv / "bin" / "python"


async def run_sdk(release: str, script: str, folder: Path, *arguments: str) -> Any:
    """Run a script with a release of the SDK; return the JSON in the last line of its output.

    The script is in a file, because the SDK sends the source of functions.
    """
    file = folder / f"{release}.py"
    file.write_text(script)
    command = [str(sdk_python(release)), str(file), *arguments]
    run = partial(output_of, command, cwd=folder, env=os.environ, timeout=500)
    return json.loads((await anyio.to_thread.run_sync(run)).splitlines()[-1])


def _sdk(release: str) -> Path:
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    home = cache_directory(program="trainer-controller-manager")
    return home / f"sdk-{release}-{SDKS[release]}-{python}"


def _install_sdk(release: str) -> None:
    venv = _sdk(release)
    if (venv / "installed").exists():
        return
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        subprocess.run([*pip, f"kubeflow=={release}", f"kubeflow-trainer-api=={SDKS[release]}"], check=True)
    except subprocess.CalledProcessError as error:
        raise ToolError(f"kubeflow {release} cannot be installed: {error}") from error
    (venv / "installed").touch()
    say(f"kubeflow {release}: installed")


async def _prepare(sdks: Sequence[str], *, slow: bool) -> None:
    """Prepare files and releases of the SDK. Another process that does the same waits."""
    async with file_lock(cache_directory(program="trainer-controller-manager") / "programs.lock"):
        for module in (*MODULES.values(), *((TRAINER, PROMETHEUS_OPERATOR) if slow else ())):
            await module.prepare()
        for release in sdks:
            await anyio.to_thread.run_sync(_install_sdk, release)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare everything that is missing."""
    parser = argparse.ArgumentParser(prog="python -m testkit.programs", description=__doc__)
    parser.add_argument("--slow", action="store_true", help="also prepare the needs of slow tests")
    parser.add_argument("--nightly", action="store_true", help="also prepare the needs of nightly tests")
    parser.add_argument("--release", action="store_true", help="only build the programs that make a release")
    given = parser.parse_args(argv)
    slow = given.slow or given.nightly
    left_out = set() if given.nightly else NIGHTLY
    try:
        if given.release:
            build((KUSTOMIZE, HELM), "two minutes")
            return 0
        build(FAST, "seven minutes")
        if slow:
            build(SLOW, "six minutes")
            for release in GO_RELEASES.keys() - left_out:
                build([go_manager(release)], "two minutes")
        sdks = [release for release in SDKS if slow and release not in left_out]
        anyio.run(partial(_prepare, sdks, slow=slow))
    except ToolError as error:
        say(f"programs: {error}")
        return 1
    return 0


async def locate_go_manager(release: str) -> Binary:
    """Return the manager of a release of Trainer; build it if it is missing.

    Raises:
        ComponentError: it cannot be built.
    """
    return (await Binaries(progress=PlainProgress(sys.stderr)).locate(go_manager(release)))[GO_MANAGER]


async def located(tool: Tool) -> Path:
    """Return the path of a program."""
    return (await Binaries().locate(tool))[tool.name].path


if __name__ == "__main__":
    sys.exit(main())
