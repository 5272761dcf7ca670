# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Generated kinds pass strict type checks, and hold what a real API server stores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment, eventually, read_manifests
from controller_runtime.machinery import unstructured
from controller_runtime.tools import kinds
from controller_runtime.tools.command import main

pytestmark = [pytest.mark.integration, pytest.mark.slow]
FILE = Path(__file__).parents[2] / "unit/tools/kinds/certificates.yaml"


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("--partial",)])
def test_generated_kinds_pass_strict_checks(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert main(["kinds", str(FILE), "-o", str(tmp_path / "generated"), *options]) == 0
    (tmp_path / "generated/__init__.py").touch()
    (tmp_path / "use.py").write_text(
        "from generated.tls_example_com.v1 import Certificate\n\n"
        'found = Certificate.from_json(b"{}")\n'
        "for solver in found.spec.solvers or ():\n"
        "    print(solver.zone.upper())\n"
    )
    check(["mypy", "--strict", "."], tmp_path)
    check(["ruff", "check", "--isolated", "--select", "E4,E7,E9,F,I,N,A001,B,UP,PYI", "."], tmp_path)
    check(["ruff", "format", "--isolated", "--check", "."], tmp_path)


async def test_kinds_of_a_cluster(
    control_plane: Environment,
    live_client: LiveClient,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crds = [each for each in read_manifests(FILE) if each["kind"] == "CustomResourceDefinition"]
    await control_plane.install_crds(*crds)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(control_plane.kubeconfig_for("admin", ["system:masters"])))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    files: dict[str, str] = {}

    async def published() -> bool:  # some time after the kind is served
        files.update(kinds.modules(await kinds.of_cluster(groups=["tls.example.com", "networking.k8s.io"])))
        return {"tls_example_com/v1.py", "tls_example_com/v1beta1.py"} <= files.keys()

    await eventually(published, reason="the OpenAPI of the kinds is published")
    assert "class Ingress(Object, group=" in files["networking_k8s_io/v1.py"]
    for name, text in files.items():
        (tmp_path / "served" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "served" / name).write_text(text)
    (tmp_path / "served/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    from served.tls_example_com.v1 import Certificate  # type: ignore[import-not-found]  # made above

    spec = {"secretName": "s", "issuerRef": {"name": "i"}, "podIPs": ["a"], "from": "b", "foo-bar": "c"}
    made = await live_client.create(
        Certificate.from_dict({"metadata": {"name": "c", "namespace": namespace}, "spec": spec})
    )
    assert made.spec.to_dict() == {**spec, "revisionHistoryLimit": 3}
    raw = await live_client.get(unstructured(Certificate.gvk), (namespace, "c"))
    assert raw["spec"] == made.spec.to_dict()
    check(["mypy", "--strict", "served"], tmp_path)
