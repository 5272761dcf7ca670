# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A new operator passes its own checks and tests, and runs with the permissions that its manifests grant."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from controller_runtime.apis.core.v1 import ConfigMap, Event
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, apply_manifests, eventually, read_manifests
from controller_runtime.machinery import GVK, unstructured

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
GROUP = "new.example.com"  # an example of the repository has websites.example.com
WEBSITE = unstructured(GVK(GROUP, "v1alpha1", "Website"))


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def environ() -> dict[str, str]:
    """Return the environment variables of a separate project that imports this library."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def make(folder: Path, *options: str) -> Path:
    project = folder / "website-operator"
    done = run(["controller_runtime", "new", "website-operator", "--kind", "Website", *options], folder)
    assert done.returncode == 0, done.stderr
    return project


@pytest.mark.parametrize("options", [(), ("--no-webhook",)], ids=["webhook", "no webhook"])
def test_a_new_operator_passes_its_own_checks_and_tests(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = make(tmp_path, *options)
    for target in ("lint", "test"):
        done = subprocess.run(
            ["make", target, f"PYTHON={sys.executable}"],
            cwd=project,
            env=environ(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"{16 if not options else 11} passed" in done.stdout


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Ox", "o"), ("DistributedTrainingExperiment", "distributed-training-experiment-operator")],
)
def test_the_format_does_not_depend_on_the_names(tmp_path: Path, kind: str, name: str) -> None:
    assert run(["controller_runtime", "new", name, "--kind", kind, "made"], tmp_path).returncode == 0
    done = run(["ruff", "format", "--isolated", "--diff", "."], tmp_path / "made")
    assert done.returncode == 0, done.stdout


def test_its_tests_notice_a_manifest_that_was_not_generated_again(tmp_path: Path) -> None:
    project = make(tmp_path)
    code = project / "website_operator/controller.py"
    code.write_text(
        code.read_text().replace("resources=events,verbs=create;patch", "resources=events,verbs=create")
    )
    done = run(["pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_manifests.py"], project)
    assert done.returncode == 1
    assert "config/rbac/role.yaml is not up to date" in done.stdout
    rbac = next(line for line in (project / "Makefile").read_text().splitlines() if " rbac " in line)
    assert run(rbac.split()[2:], project).returncode == 0
    assert (
        run(["pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_manifests.py"], project).returncode
        == 0
    )


async def test_it_runs_with_the_rights_that_its_manifests_grant(
    tmp_path: Path, control_plane: Environment, live_client: LiveClient, namespace: str
) -> None:
    project = make(tmp_path, "--group", GROUP)
    config = project / "config"
    await control_plane.install_crds(config / "crd")
    await apply_manifests(live_client, read_manifests(config / "namespace.yaml", config / "rbac"))
    account = "system:serviceaccount:website-operator-system:website-operator"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(control_plane.kubeconfig_for(account)))
    sample = {**read_manifests(config / "samples")[0]}
    sample["metadata"]["namespace"] = namespace
    key = (namespace, "sample")
    with program(project, kubeconfig):
        await apply_manifests(live_client, [sample])

        async def published() -> bool:
            return (await live_client.get(ConfigMap, key)).data == {"message": "Hello"}

        async def reported() -> bool:
            conditions = (await live_client.get(WEBSITE, key)).nested("status", "conditions")
            return [each["status"] for each in conditions or []] == ["True"]

        async def recorded() -> bool:
            events = await live_client.list(Event, namespace=namespace)
            return sorted(event.reason or "" for event in events) == ["CleanedUp", "Published"]

        async def deleted() -> bool:
            return not await live_client.list(WEBSITE, namespace=namespace)

        await eventually(published, reason="the message is published", timeout=60)
        await eventually(reported, reason="the status is written")
        await live_client.delete(await live_client.get(WEBSITE, key))
        await eventually(deleted, reason="the finalizer is removed")
        await eventually(recorded, reason="both events are recorded")


@contextmanager
def program(project: Path, kubeconfig: Path) -> Iterator[None]:
    """Run the operator's program with leader election; it must end with code 0 and log no error."""
    flags = [f"--kubeconfig={kubeconfig}", "--metrics-bind-address=0", "--health-probe-bind-address=0"]
    flags += ["--leader-elect", "--leader-election-namespace=website-operator-system"]
    log = project / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "website_operator", *flags], cwd=project, env=environ(), stderr=stream
        )
        try:
            yield
        finally:
            process.terminate()
            code = process.wait(60)
    text = log.read_text()
    assert code == 0, text
    assert '"level":"error"' not in text
    assert "orbidden" not in text
