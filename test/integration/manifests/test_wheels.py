# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The three wheels: their contents and requirements, and the library's wheel without the rest of the repository."""

import email
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "controller-runtime"
TOOL = ROOT / "trainerctl"
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
    "pyyaml",
    "structlog",
    "typing-extensions",
    "typing-inspection",
}
"""Distributions installed with the library."""
OF_THE_TESTS = ("hypothesis", "psutil", "pytest-timeout")
UNIT = ("apis", "workqueue", "client", "examples")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheels; return them by the name of their distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    pip(*command, str(LIBRARY), str(ROOT), str(TOOL))
    return {canonicalize_name(path.name.split("-")[0]): path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a virtual environment with the library's wheel, its requirements and pytest."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for name in closure("controller-runtime[envtest]", *OF_THE_TESTS) - {"controller-runtime"}:
        for part in top_level(importlib.metadata.distribution(name)):
            (site / part.name).symlink_to(part)
    python = folder / "bin" / "python"
    wheel = str(wheels["controller-runtime"])
    pip("--python", str(python), "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the library's tests, examples and documents, without its code; return the folder."""
    folder = tmp_path / "library"
    left_out = shutil.ignore_patterns("controller_runtime", ".*", "__pycache__", "build", "dist")
    shutil.copytree(LIBRARY, folder, ignore=left_out)
    return folder


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


def closure(*requirements: str) -> set[str]:
    """Return the distributions that installing ``requirements`` installs, themselves included."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = str(canonicalize_name(requirement.name))
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in found:
                found.add((name, wanted))
                waiting += [(Requirement(each), wanted) for each in importlib.metadata.requires(name) or ()]
    return {name for name, _ in found}


def top_level(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Yield the files and folders of a distribution that are directly in site-packages."""
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    return (Path(str(distribution.locate_file(name))) for name in sorted(names))


def run(command: Iterable[str | Path], folder: Path) -> str:
    """Run a command outside of this repository; return its output."""
    hidden = ("PYTHONPATH", "PYTEST_", "VIRTUAL_ENV", "COV_CORE_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def contents(wheel: Path) -> tuple[set[str], email.message.Message]:
    """Return a wheel's files and its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        return names, email.message_from_bytes(archive.read(metadata))


def test_the_managers_wheel_requires_the_librarys(wheels: dict[str, Path]) -> None:
    names, metadata = contents(wheels["trainer-controller-manager"])
    every = map(Requirement, metadata.get_all("Requires-Dist", []))
    requirements = {each.name: each for each in every if each.marker is None}  # without those of extras
    _, library = contents(wheels["controller-runtime"])
    assert requirements["controller-runtime"].specifier.contains(str(library["Version"]))
    assert "kubernetes-asyncio" not in requirements
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"pkg"}
    assert "pkg/_config/crd/kustomization.yaml" in names


@pytest.mark.parametrize(
    ("distribution", "package"),
    [("controller-runtime", LIBRARY / "controller_runtime"), ("trainerctl", TOOL / "trainerctl")],
    ids=["library", "tool"],
)
def test_a_wheel_contains_one_package_with_its_data(
    wheels: dict[str, Path], distribution: str, package: Path
) -> None:
    names, _ = contents(wheels[distribution])
    held = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == held


def test_an_installation_of_the_library_brings_what_is_listed() -> None:
    assert closure("controller-runtime") - {"controller-runtime"} == DISTRIBUTIONS
    assert closure("controller-runtime[crd]") == closure("controller-runtime")
    assert closure("controller-runtime[uvloop]") - closure("controller-runtime") == {"uvloop"}
    assert {"pytest", "pytest-asyncio"} <= closure("controller-runtime[envtest]")
    exporter = {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}
    assert exporter <= closure("controller-runtime[otel]") - closure("controller-runtime")


def test_an_installation_of_the_manager_brings_one_more_distribution_and_the_tool_does_others() -> None:
    manager = closure("trainer-controller-manager")
    assert manager == closure("controller-runtime") | {"pyjwt", "trainer-controller-manager"}
    assert {"common-expression-language", "rich", "trainerctl"} <= closure("trainerctl") - manager


def test_the_programs_belong_to_the_distribution_that_is_named(wheels: dict[str, Path]) -> None:
    named = {
        name: {
            each.name
            for each in importlib.metadata.distribution(name).entry_points.select(group="console_scripts")
        }
        for name in wheels
    }
    assert named == {
        "controller-runtime": set(),
        "trainer-controller-manager": {"trainer-controller-manager", "podgrouper"},
        "trainerctl": {"trainerctl", "kubectl-trainer"},
    }


def test_the_librarys_tests_and_examples_pass_where_it_is_alone(alone: Path, project: Path) -> None:
    missing = ("pkg", "trainerctl", "celpy", "cel", "rich", "typer")
    code = f"import importlib.util as u; assert not list(filter(u.find_spec, {missing}))"
    run([alone, "-I", "-c", code], project)
    where = run([alone, "-c", "import controller_runtime; print(controller_runtime.__file__)"], project)
    assert Path(where.strip()).is_relative_to(alone.parents[1])
    selected = [f"test/unit/{each}" for each in UNIT]
    # Tests of properties are left to the run of the library's own tests.
    command = ["pytest", "-q", "-m", "not hypothesis", *selected, "test/integration/examples"]
    output = run([alone, "-m", *command], project)
    assert re.search(r"[1-9]\d\d passed", output), output


def test_a_new_operator_of_the_installed_library_passes_its_unit_tests(alone: Path, tmp_path: Path) -> None:
    run([alone, "-m", "controller_runtime", "new", "website-operator", "--kind", "Website"], tmp_path)
    output = run([alone, "-m", "pytest", "-q", "tests/unit"], tmp_path / "website-operator")
    assert re.search(r"[1-9]\d passed", output), output
    _, metadata = contents(next(alone.parents[1].parent.glob("wheels*/controller_runtime*.whl")))
    release = ".".join(str(metadata["Version"]).split(".")[:2])
    assert f"controller-runtime>={release}" in (tmp_path / "website-operator/pyproject.toml").read_text()
