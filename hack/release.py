# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Build the files of a release into ``build/release``: ``make release VERSION=0.2.0``.

The wheels, chart, manifests and bills of materials come from hatchling, Helm, kustomize and cyclonedx-py. No tool knows
in which files of this repository the version stands, and what CHANGELOG.md says about a release; this module does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from controller_runtime.machinery import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
HOUSES: Final = {
    "controller_runtime": "controller-runtime",
    "trainer_controller_manager": ".",
    "trainerctl": "trainerctl",
}
"""The folder of each distribution."""
_RELEASE: Final = r"(\d+\.\d+\.\d+)\b"
VERSIONS: Final = {
    "pyproject.toml": rf'^version = "{_RELEASE}"',
    "controller-runtime/pyproject.toml": rf'^version = "{_RELEASE}"',
    "trainerctl/pyproject.toml": rf'^version = "{_RELEASE}"',
    "charts/kubeflow-trainer/Chart.yaml": rf"^version: {_RELEASE}",
    "config/default/kustomization.yaml": rf"^    newTag: {_RELEASE}",
    "config/overlays/podgrouper-only/kustomization.yaml": rf"^    newTag: {_RELEASE}",
    "Containerfile": rf'image\.version="{_RELEASE}"',
    "README.md": rf"^The version is {_RELEASE}",
    "docs/**/*.md": rf'(?:trainer-controller-manager:|podgrouper:|image\.tag=|"tag":"|^    newTag: ){_RELEASE}',
}
"""The files that contain the version, and the patterns of their lines."""


class ReleaseError(Exception):
    """The release cannot be built."""


def versions(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each place of the version, as ``FILE:LINE``, and the version there.

    Raises:
        ReleaseError: a file does not contain the version.
    """
    for name, pattern in VERSIONS.items():
        found = [
            (f"{path.relative_to(root)}:{text.count(chr(10), 0, each.start(1)) + 1}", each[1])
            for path in sorted(root.glob(name))
            for text in [path.read_text()]
            for each in re.finditer(pattern, text, re.MULTILINE)
        ]
        if not found:
            raise ReleaseError(f"{name} does not contain the version")
        yield from found


def notes(root: Path, version: str, repository: str) -> str:
    """Return what the changelogs say about a version; relative links lead to the tag in ``repository``.

    Raises:
        ReleaseError: a changelog has no section for the version.
    """
    found = []
    for folder in ("", "controller-runtime/"):
        text = (root / folder / "CHANGELOG.md").read_text()
        sections = {each.partition(" ")[0]: each for each in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
        head, _, body = sections.get(version, "").partition("\n")
        if not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}", head):
            raise ReleaseError(f"{folder}CHANGELOG.md has no section {version!r} with a date")
        link = rf"]({repository}/blob/v{version}/{folder}\1)"
        found.append(re.sub(r"\]\((?!https?:|#)([^)]+)\)", link, body).strip())
    return f"{found[0]}\n\n## The library controller-runtime\n\n{found[1]}\n"


def check(root: Path, version: str) -> None:
    """Check that a version can be released from the checkout.

    Raises:
        ReleaseError: the version is not one, other versions stand in files, or the checkout has changes.
    """
    if not re.fullmatch(_RELEASE, version):
        raise ReleaseError(f"{version!r} is not a version: make release VERSION=0.2.0")
    if others := [f"{place} has {found}" for place, found in versions(root) if found != version]:
        raise ReleaseError(f"the version is not {version} everywhere: {', '.join(others)}")
    if changes := _run("git", "status", "--porcelain", cwd=root).splitlines():
        raise ReleaseError(f"the checkout has changes that are not committed: {', '.join(changes[:5])}")


def settings(root: Path) -> dict[str, str]:
    """Return the settings of ``release.env``."""
    return dict(re.findall(r"^(\w+)=(.*)$", (root / "release.env").read_text(), re.MULTILINE))


def insights(root: Path) -> str:
    """Return the text of ``SECURITY-INSIGHTS.yml``, with the repository of ``release.env`` in its addresses."""
    text = (root / "SECURITY-INSIGHTS.yml").read_text()
    return re.sub(r"(?m)https://\S+?(?=/blob/main/|/releases$|$)", settings(root)["REPOSITORY"], text)


def build(version: str, out: Path, *, offline: bool) -> None:
    """Write the files of the release into a folder.

    Raises:
        ReleaseError: a program failed.
    """
    check(ROOT, version)
    places = settings(ROOT)
    text = notes(ROOT, version, places["REPOSITORY"])
    os.environ["SOURCE_DATE_EPOCH"] = _run("git", "log", "-1", "--format=%ct").strip()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=out.parent) as folder:
        made = Path(folder) / "release"  # the folder appears only as a whole
        made.mkdir()
        (made / "RELEASE_NOTES.md").write_text(text)
        for house in HOUSES.values():
            _run(sys.executable, "-m", "hatchling", "build", "--directory", str(made), cwd=ROOT / house)
        _chart(Path(folder), made, places["REGISTRY"], offline=offline)
        for name, source in (("install", "config/default"), ("runtimes", "config/overlays/runtimes")):
            image = "trainer-controller-manager"
            images = [{"name": image, "newName": f"{places['REGISTRY']}/{image}"}]
            resources = [os.path.relpath(ROOT / source, folder)]
            (Path(folder) / "kustomization.yaml").write_text(
                json.dumps({"resources": resources, "images": images})
            )
            (made / f"{name}.yaml").write_text(_run(_program("kustomize"), "build", folder))
        _bills(Path(folder), made)
        vex = ROOT / ".openvex/trainer-controller-manager.openvex.json"
        if json.loads(vex.read_text())["statements"]:  # OpenVEX has no document without a statement
            shutil.copy(vex, made / f"trainer-controller-manager-{version}.openvex.json")
        names = [each.name for each in sorted(made.iterdir())]
        (made / "SHA256SUMS").write_text(_run("sha256sum", *names, cwd=made))
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)


def _chart(folder: Path, out: Path, registry: str, *, offline: bool) -> None:
    """Package the chart with the charts that it depends on, which Helm downloads unless ``offline`` leaves them out."""
    chart = shutil.copytree(ROOT / "charts/kubeflow-trainer", folder / "kubeflow-trainer")
    values = (chart / "values.yaml").read_text()
    (chart / "values.yaml").write_text(re.sub(r"(?m)^(image:\n  registry: ).*$", rf"\g<1>{registry}", values))
    if offline:
        described = yaml.load_map((chart / "Chart.yaml").read_text())
        described.pop("dependencies", None)
        (chart / "Chart.yaml").write_text(yaml.dump(described))
    else:
        try:
            _run(_program("helm"), "dependency", "build", str(chart))
        except ReleaseError as error:
            raise ReleaseError(f"{error}; OFFLINE=1 leaves out the charts of JobSet and LWS") from error
    _run(_program("helm"), "package", "--destination", str(out), str(chart))


def _bills(folder: Path, out: Path) -> None:
    """Write the bills of materials of the wheels and of the image, each from an environment with these packages."""
    image = list(HOUSES)[:2]
    for lock, houses, described in (("runtime", HOUSES, HOUSES), ("image", image, image[1:])):
        python = folder / lock / "bin" / "python"
        _run(sys.executable, "-m", "venv", "--without-pip", str(folder / lock))
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        _run(*install, "--require-hashes", "--requirement", str(ROOT / f"requirements/{lock}.lock"))
        _run(*install, "--no-index", *(str(each) for house in houses for each in out.glob(f"{house}-*.whl")))
        for house in described:
            project = str(ROOT / HOUSES[house] / "pyproject.toml")
            command = ["cyclonedx-py", "environment", "--output-reproducible", "--pyproject", project]
            bill = json.loads(_run(*command, str(python)))
            version = bill["metadata"]["component"]["version"]
            if lock == "image":
                bill, name = on_base(bill, (ROOT / "Containerfile").read_text()), f"image-{version}"
            else:
                bill, name = needed(bill), f"{house}-{version}"
            (out / f"{name}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")


def needed(bill: dict[str, Any]) -> dict[str, Any]:
    """Return a bill with only the components that its main component needs."""
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    reached, left = set[str](), [bill["metadata"]["component"]["bom-ref"]]
    while left:
        if (ref := left.pop()) not in reached:
            reached.add(ref)
            left += needs.get(ref, [])
    return bill | {
        "components": [each for each in bill["components"] if each["bom-ref"] in reached],
        "dependencies": [each for each in bill["dependencies"] if each["ref"] in reached],
    }


def on_base(bill: dict[str, Any], containerfile: str) -> dict[str, Any]:
    """Return a bill with the base image as one more component. Its packages are in the attestation of the image."""
    (image,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", containerfile)
    named, _, digest = image.partition("@sha256:")
    name, _, tag = named.partition(":")
    ref = f"pkg:docker/{name}@{tag}"
    hashes = [{"alg": "SHA-256", "content": digest}]
    base = {"type": "container", "bom-ref": ref, "purl": ref, "name": name, "version": tag, "hashes": hashes}
    for each in bill["dependencies"]:
        if each["ref"] == bill["metadata"]["component"]["bom-ref"]:
            each["dependsOn"] = [ref, *each.get("dependsOn", [])]
    dependencies = [*bill["dependencies"], {"ref": ref}]
    return bill | {"components": [base, *bill["components"]], "dependencies": dependencies}


def _program(name: str) -> str:
    from testkit import programs  # tests of this module need no programs

    return str(anyio.run(programs.located, {"helm": programs.HELM, "kustomize": programs.KUSTOMIZE}[name]))


def _run(*command: str, cwd: Path = ROOT) -> str:
    """Run a program, and return its output."""
    paths = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": paths}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command[:4])} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a release; without a version, list the placeholders. Return 1 if this fails or placeholders are left."""
    parser = argparse.ArgumentParser(prog="python -m hack.release")
    parser.add_argument("version", nargs="?")
    parser.add_argument("--output", type=Path, default=ROOT / "build/release", metavar="FOLDER")
    parser.add_argument("--offline", action="store_true", help="leave the charts of JobSet and LWS out")
    given = parser.parse_args(arguments)
    try:
        if given.version is not None:
            build(given.version, given.output, offline=given.offline)
            sys.stdout.write("".join(f"{path}\n" for path in sorted(given.output.iterdir())))
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    left = [f"{name}={value}" for name, value in settings(ROOT).items() if name in value]
    for each in left:
        sys.stdout.write(f"release.env: {each} is a placeholder; fill it in and run make manifests\n")
    return int(bool(left) and given.version is None)


if __name__ == "__main__":
    sys.exit(main())
