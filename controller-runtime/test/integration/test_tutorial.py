# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The tutorial's files and commands work, and its operator needs only the permissions that it declares."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually
from controller_runtime.machinery import GVK, unstructured
from ctrl_testkit.small import output_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', TEXT, re.DOTALL | re.MULTILINE))
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)).splitlines()
ELSEWHERE = {
    "mkdir website-operator": "the test has a folder",
    "cd website-operator": "the test has a folder",
    "python -m venv .venv": "the tests have an environment",
    ". .venv/bin/activate": "the tests have an environment",
    'pip install "../controller-runtime[envtest]"': "the tests have an environment",
    "pip wheel --no-deps --wheel-dir wheels ../controller-runtime": "needs a package index",
    "docker build --file Containerfile --tag registry.example.com/website-operator:1 .": "needs an engine",
    "docker push registry.example.com/website-operator:1": "needs a registry",
    "kubectl apply --server-side -f config": "the test applies the objects itself",
    "kubectl apply -f blog.yaml": "the test applies the objects itself",
    "kubectl get websites,deployments": "the test reads the objects itself",
}
"""The commands that these tests do not run, with the reason."""
WEBSITE = unstructured(GVK("example.com", "v1", "Website"))
DEPLOYMENT = unstructured(GVK("apps", "v1", "Deployment"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write the tutorial's files to a folder and return it."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def shell(project: Path, *lines: str) -> str:
    """Run lines in one shell that stops at the first failure; return the output."""
    bin_ = project / "bin"
    bin_.mkdir(exist_ok=True)
    python = bin_ / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": "",
    }
    return output_of(["bash", "-e", "-c", "\n".join(lines)], cwd=project, env=environment, timeout=240)


def test_every_command_is_run_or_has_a_reason() -> None:
    assert set(ELSEWHERE) <= set(COMMANDS)
    assert [line for line in COMMANDS if line not in ELSEWHERE] == [
        "python -m controller_runtime crd kinds --output config",
        "python -m pytest",
    ]


def test_the_tutorials_tests_pass(project: Path) -> None:
    output = shell(project, *(line for line in COMMANDS if line not in ELSEWHERE))
    assert "4 passed" in output


def test_the_image_has_every_module_that_the_program_imports() -> None:
    (copied,) = re.findall(r"^COPY (.*) \./$", FILES["Containerfile"], re.MULTILINE)
    pending, needed = ["main.py"], set()
    while pending:
        name = pending.pop()
        needed.add(name)
        found = (
            f"{module}.py" for module in re.findall(r"^(?:from|import) (\w+)", FILES[name], re.MULTILINE)
        )
        pending += [each for each in found if each in FILES and each not in needed]
    assert set(copied.split()) == needed


@pytest.fixture
def start_operator(project: Path, control_plane: Environment) -> Iterator[Callable[[], str]]:
    """Return a function that starts main.py, as the ServiceAccount of its manifest, and returns its log so far.

    Later calls start nothing and return the log again.
    """
    account = control_plane.kubeconfig_for("system:serviceaccount:default:website-operator")
    account["contexts"][0]["context"]["namespace"] = "default"
    (project / "kubeconfig").write_text(yaml.safe_dump(account))
    # A pod has its own ports; on this machine they may be in use.
    program = (project / "main.py").read_text().replace('":8081"', '"127.0.0.1:0", metrics_bind_address="0"')
    (project / "main.py").write_text(program)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        if not started:
            with (project / "log").open("wb") as log:
                environment = {
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "KUBECONFIG": str(project / "kubeconfig"),
                }
                command = [sys.executable, "main.py"]
                started.append(
                    subprocess.Popen(command, cwd=project, env=environment, stdout=log, stderr=log)
                )
        return (project / "log").read_text()

    yield start
    for process in started:
        process.terminate()
        assert process.wait(timeout=30) == 0


async def test_the_operator_works_with_the_permissions_of_its_manifest(
    project: Path,
    control_plane: Environment,
    live_client: LiveClient,
    namespace: str,
    start_operator: Callable[[], str],
) -> None:
    shell(project, "python -m controller_runtime crd kinds --output config")
    await control_plane.install_crds(project / "config" / "example.com_websites.yaml")
    for manifest in yaml.safe_load_all(FILES["config/operator.yaml"]):
        kind = unstructured(GVK.parse(manifest["apiVersion"], manifest["kind"]))
        await live_client.apply(kind.from_dict(manifest), field_owner="tutorial", force=True)
    blog = WEBSITE.from_dict(yaml.safe_load(FILES["blog.yaml"]))
    blog.metadata.namespace = namespace
    site = await live_client.create(blog)

    async def reported() -> bool:
        start_operator()
        found = await live_client.get(WEBSITE, site.key)
        await live_client.get(DEPLOYMENT, site.key)
        return bool(found.nested("status", "readyReplicas") == 0)

    await eventually(reported, timeout=30, reason="the operator reports")
    assert "forbidden" not in start_operator()
