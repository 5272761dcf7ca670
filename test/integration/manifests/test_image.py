# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The image's file tree, built by the Containerfile's commands, has the listed files and runs the manager read-only."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from controller_runtime.envtest import Authority, Environment, free_ports
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
NOBODY = 65532
DISTRIBUTIONS = {
    "annotated-types",
    "anyio",
    "cffi",
    "cryptography",
    "httptools",
    "idna",
    "msgspec",
    "prometheus-client",
    "pycparser",
    "pydantic",
    "pydantic-core",
    "pyjwt",
    "pyyaml",
    "structlog",
    "typing-extensions",
    "typing-inspection",
    "uvloop",
}
MODULES = {
    "_cffi_backend",
    "_yaml",
    "annotated_types",
    "anyio",
    "cffi",
    "controller_runtime",
    "cryptography",
    "httptools",
    "idna",
    "jwt",
    "msgspec",
    "pkg",
    "prometheus_client",
    "pycparser",
    "pydantic",
    "pydantic_core",
    "structlog",
    "typing_extensions",
    "typing_inspection",
    "uvloop",
    "yaml",
}
# A root without a writable folder, which is stricter than the Deployment's with /tmp.
READ_ONLY = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
READ_ONLY += ['mount -o remount,ro,bind / && exec "$@"', "sh"]


def steps(stage: int) -> dict[str, list[str]]:
    """Return the lines of a stage by their instruction."""
    text = (ROOT / "Containerfile").read_text().split("\nFROM ")[stage]
    found: dict[str, list[str]] = {}
    for instruction, rest in re.findall(r"^([A-Z]+) (.+)$", text, re.MULTILINE):
        found.setdefault(instruction, []).append(rest)
    return found


@dataclass(frozen=True)
class Image:
    """The results of the build stage that the final stage copies."""

    app: Path
    """``/app``."""
    programs: Path
    """The folder of the programs, which the final stage copies into ``/``."""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Run the commands of the build stage in temporary folders."""
    home = tmp_path_factory.mktemp("image")
    source, build, app, programs = (home / name for name in ("src", "build", "app", "programs"))
    source.mkdir()
    for line in steps(1)["COPY"]:
        *names, target = line.split()
        for name in names:
            place = source if target == "./" else source / target
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # The standard library is that of this machine, so the test does not write to it.
    last = [re.sub(r' "\$\(.*\)"$', "", line) for line in steps(2)["RUN"]]
    for line in (*steps(1)["RUN"], *last):
        folders = {"/build": build, "/app": app, "/programs": programs}
        for path, real in folders.items():
            line = re.sub(rf"(?<=[ =]){path}\b", str(real), line)
        line = re.sub(r"\bpython\b(?= -[mOX])", sys.executable, line)
        subprocess.run(line, shell=True, cwd=source, env=environ, check=True)
    assert "--from=build /app /app" in steps(2)["COPY"]
    assert "--from=build /programs/ /" in steps(2)["COPY"]
    return Image(app, programs)


def environment(image: Image) -> dict[str, str]:
    """Return the image's variables, with the folder of ``image`` in place of ``/app``."""
    variables = dict(each.split("=", 1) for each in steps(2)["ENV"][0].split())
    return {key: value.replace("/app", str(image.app)) for key, value in variables.items()}


def pins(name: str) -> dict[str, str]:
    """Return the releases that a lock file pins on this platform, by their distributions' names."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if re.match(r"\w", line):
            requirement = Requirement(line.rstrip("\\ "))
            if requirement.marker is None or requirement.marker.evaluate():
                found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


def test_the_image_holds_what_is_listed_and_nothing_else(image: Image) -> None:
    found = distributions(path=[str(image.app)])
    installed = {str(canonicalize_name(each.name)): each.version for each in found}
    assert installed.pop("trainer-controller-manager")
    assert installed.pop("controller-runtime")
    assert installed == pins("image.lock")
    assert set(installed) == DISTRIBUTIONS
    assert {each.name for each in image.programs.iterdir()} == {"manager", "podgrouper"}
    modules = {
        each.name.partition(".")[0]
        for each in image.app.iterdir()
        if each.suffix in {".py", ".so"} or (each.is_dir() and each.suffix != ".dist-info")
    } - {"__pycache__"}
    assert modules == MODULES


def test_the_manager_loads_no_module_that_the_image_does_not_hold(image: Image) -> None:
    """This includes modules that are loaded later, for certificates, the pod grouper and kubeconfigs."""
    code = (
        "import pkg.app.program, pkg.app.podgrouper.program, pkg.util.cert, pkg.podgrouper\n"
        "import controller_runtime.rest.kubeconfig"
    )
    subprocess.run([sys.executable, "-S", "-c", code], env=environment(image), cwd="/", check=True)


def test_a_plugin_is_found_where_the_documentation_installs_it(image: Image, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    (line,) = re.findall(r"^RUN (.*pip install .*)$", page, re.MULTILINE)
    added = Path(shutil.copytree(ROOT / "examples" / "interconnect_plugin", tmp_path / "plugin"))
    line = re.sub(r"^python\b", f"{sys.executable}", line).replace("/app", str(tmp_path / "app"))
    line = line.replace("interconnect-plugin", f"--quiet --no-build-isolation {added}")
    subprocess.run(line, shell=True, check=True)
    environ = environment(image)
    environ["PYTHONPATH"] = f"{tmp_path / 'app'}:{image.app}"
    code = "from pkg.runtime.framework.plugins import registry; print(*registry.new_registry())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environ, cwd="/", capture_output=True, text=True, check=True
    )
    assert "Interconnect" in done.stdout.split()


def test_the_image_for_kais_operator_differs_by_its_entry_point(image: Image) -> None:
    assert steps(3) == {"ENTRYPOINT": ['["/podgrouper"]']}
    # A build without a target builds the last stage.
    assert (ROOT / "Containerfile").read_text().rstrip().endswith("\nFROM manager")
    for variables in (environment(image), {**environment(image), "HOME": "/missing"}):
        done = subprocess.run(
            [sys.executable, "-S", str(image.programs / "podgrouper"), "--version"],
            env=variables,
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("podgrouper ")


@pytest.mark.skipif(
    subprocess.run([*READ_ONLY, "true"], check=False).returncode != 0,
    reason="this machine does not permit mount namespaces",
)
def test_the_manager_runs_on_a_read_only_root(
    image: Image, control_plane: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = sum(path.stat().st_size for path in image.app.rglob("*") if path.is_file())
    with capsys.disabled():
        sys.stdout.write(f"\nimage tree: {size / 2**20:.0f} MiB\n")
    (health,) = free_ports(1)
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
    assert steps(2)["USER"] == [f"{NOBODY}:{NOBODY}"]
    assert yaml.safe_load(steps(2)["ENTRYPOINT"][0]) == ["/manager"]
    environ = environment(image)
    command = [str(image.programs / "manager")]
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
        str(image.app)
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
    """Return True if the manager's health endpoint answers in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def test_the_image_installs_what_the_tests_ran_with() -> None:
    runtime, installed = pins("runtime.lock"), pins("image.lock") | pins("build.lock")
    assert installed.items() <= runtime.items()
    users: dict[str, set[str]] = {}
    for block in re.split(r"\n(?=\w)", (ROOT / "requirements/runtime.lock").read_text()):
        name = block.partition("==")[0]
        if canonicalize_name(name) in runtime:
            found = re.findall(r"^    #(?: via|  ) +([A-Za-z0-9_.-]+)(?= |$)", block, re.MULTILINE)
            users[name] = set(found) - {"-c"}
    tools = users.keys() - installed.keys()
    assert all(users[name] <= tools | {"trainerctl"} for name in tools)


DIGEST = f"python:3.13-slim@sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("arguments", "built"),
    [
        ([], True),
        (["PYTHON_IMAGE=python:3.13-slim"], True),
        (["RELEASE=1"], True),
        (["RELEASE=1", f"PYTHON_IMAGE={DIGEST}"], True),
        (["RELEASE=1", "PYTHON_IMAGE=python:3.13-slim"], False),
        (["RELEASE=1", "PYTHON_IMAGE=python:3.13-slim@sha256:abc"], False),
    ],
)
def test_a_release_is_built_on_a_pinned_base_alone(arguments: list[str], built: bool, tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text('#!/bin/sh\necho "$@"\n')
    engine.chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "--silent", "image", *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is built
    if built:
        base = arguments[-1].partition("=")[2] if "PYTHON_IMAGE" in "".join(arguments) else steps(0)["ARG"][0]
        assert f"PYTHON_IMAGE={base.removeprefix('PYTHON_IMAGE=')} " in done.stdout
    else:
        assert "is not pinned by digest; run make pin-image" in done.stderr


def test_pinning_writes_the_digest_that_the_engine_found(tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text(
        f'#!/bin/sh\ntest "$1" = image && echo {DIGEST.replace("python:3.13-slim", "python")} || true\n'
    )
    engine.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "Containerfile", tmp_path)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["make", "--silent", "pin-image"], cwd=tmp_path, env=environ, check=True)
    changed = (tmp_path / "Containerfile").read_text()
    assert changed == (ROOT / "Containerfile").read_text().replace(
        steps(0)["ARG"][0], f"PYTHON_IMAGE={DIGEST}"
    )
