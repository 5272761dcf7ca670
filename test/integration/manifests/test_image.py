# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The image's file tree, made by the Containerfile's own commands, runs the manager and needs to write nothing."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from pkg.ctrl.envtest import Environment
from pkg.ctrl.envtest.pki import Authority
from pkg.ctrl.envtest.ports import free_ports

ROOT = Path(__file__).parents[3]
NOBODY = 65532
# A root that nobody may write to, and one temporary folder, as the Deployment's pod has it.
READ_ONLY = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
READ_ONLY += ['mount -o remount,ro,bind / && mount -t tmpfs tmpfs "$TMPDIR" && exec "$@"', "sh"]


def steps(stage: int) -> dict[str, list[str]]:
    """A stage's lines by their instruction."""
    text = (ROOT / "Containerfile").read_text().split("\nFROM ")[stage]
    found: dict[str, list[str]] = {}
    for instruction, rest in re.findall(r"^([A-Z]+) (.+)$", text, re.MULTILINE):
        found.setdefault(instruction, []).append(rest)
    return found


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the image has at ``/app``."""
    home = tmp_path_factory.mktemp("image")
    source, build, app = (home / name for name in ("src", "build", "app"))
    source.mkdir()
    for line in steps(1)["COPY"]:
        *names, target = line.split()
        for name in names:
            place = source if target == "./" else source / target
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for line in steps(1)["RUN"]:
        for path, real in (("/build", build), ("/app", app)):
            line = re.sub(rf"(?<=[ =]){path}\b", str(real), line)
        line = re.sub(r"\bpython\b(?= -m)", sys.executable, line)
        subprocess.run(line, shell=True, cwd=source, env=environ, check=True)
    return app


@pytest.mark.skipif(
    subprocess.run([*READ_ONLY, "true"], env=os.environ | {"TMPDIR": "/tmp"}, check=False).returncode != 0,
    reason="this machine lets nobody make a mount namespace",
)
def test_the_manager_runs_on_a_read_only_root(
    image: Path, control_plane: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(path.stat().st_size for path in image.rglob("*") if path.is_file())
    with capsys.disabled():
        sys.stdout.write(f"\nimage tree: {size / 2**20:.0f} MiB\n")
    health, temporary = free_ports(1)[0], tmp_path / "tmp"
    temporary.mkdir()
    Authority.create("test").server("webhook", ["127.0.0.1"]).write(tmp_path / "certificates")
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(control_plane.kubeconfig_for("admin", ["system:masters"]))
    )
    (tmp_path / "config.yaml").write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        f"metrics: {{bindAddress: '0'}}\nhealth: {{healthProbeBindAddress: '127.0.0.1:{health}'}}\n"
        "leaderElection: {leaderElect: false}\ncertManagement: {enable: false}\n"
        f"webhook: {{host: 127.0.0.1, port: {free_ports(1)[0]}, certDir: {tmp_path / 'certificates'}}}\n"
    )
    variables = dict(each.split("=", 1) for each in steps(2)["ENV"][0].split())
    entrypoint = yaml.safe_load(steps(2)["ENTRYPOINT"][0])
    assert steps(2)["USER"] == [f"{NOBODY}:{NOBODY}"]
    assert entrypoint[0] == "python"
    environ = {key: value.replace("/app", str(image)) for key, value in variables.items()}
    environ |= {"TMPDIR": str(temporary)}
    command = [sys.executable, *entrypoint[1:]]
    command += [f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={tmp_path / 'kubeconfig'}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*READ_ONLY, *command], cwd="/", env=environ | {"PATH": os.defpath}, stdout=log, stderr=log
        )
    try:
        assert answers(health), (tmp_path / "log").read_text()[-2000:]
    finally:
        process.terminate()
        assert process.wait(30) == 0, (tmp_path / "log").read_text()[-2000:]
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text
    assert (
        str(image)
        in subprocess.run(
            [sys.executable, "-c", "import pkg; print(pkg.__file__)"],
            env=environ,
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


def answers(port: int, *, within: float = 30) -> bool:
    """Whether the manager's health endpoint answers in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def test_the_wheel_is_the_same_however_often_it_is_built(tmp_path: Path) -> None:
    wheels = []
    for name in ("one", "two"):
        command = [
            sys.executable,
            *["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"],
        ]
        command += ["--no-build-isolation", "--wheel-dir", str(tmp_path / name), str(ROOT)]
        subprocess.run(command, check=True)
        (wheel,) = (tmp_path / name).iterdir()
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]


def test_the_image_installs_what_the_tests_ran_with() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert pins("image.lock") | pins("build.lock") == pins("runtime.lock")
