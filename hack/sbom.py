# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write the bill of materials and the provenance of the image and the wheels: ``python -m hack.sbom [DIRECTORY]``.

``sbom.cdx.json`` is a CycloneDX 1.6 document with every package of ``requirements/image.lock`` and the image's base.
``provenance.json`` is an in-toto statement with SLSA's predicate: the wheels in the directory, by digest, and the
commit, the locks and the base image that they come from. Neither file is signed.
Licenses are those of installed packages.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement

_ROOT: Final = Path(__file__).parent.parent
_LOCKS: Final = ("requirements/image.lock", "requirements/build.lock")
_ON_LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
_PREDICATE: Final = "https://slsa.dev/provenance/v1"

JSON = dict[str, Any]


class Pin(NamedTuple):
    """A package of a lock."""

    name: str
    version: str
    hashes: list[str]
    """SHA-256 of each distribution that may be installed."""
    users: list[str]
    """The packages that require this one."""

    @property
    def ref(self) -> str:
        """The package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: str) -> Iterator[Pin]:
    """Yield the packages of a lock that Linux with CPython installs."""
    for block in re.split(r"\n(?=\S)", lock):
        head = re.match(r"([^\\#\n]+)", block)
        if head is None or "==" not in head[1]:
            continue
        wanted = Requirement(head[1].strip())
        if wanted.marker is not None and not wanted.marker.evaluate(_ON_LINUX):
            continue
        (version,) = re.findall(r"==(.+)", str(wanted.specifier))
        users = re.findall(r"^    #(?: via|  ) +([A-Za-z0-9_.-]+)(?= |$)", block, re.MULTILINE)
        yield Pin(
            wanted.name, version, re.findall(r"sha256:(\w+)", block), [each for each in users if each != "-c"]
        )


def bill() -> JSON:
    """Return the bill of materials."""
    own = [_own(_ROOT / "pyproject.toml"), _own(_ROOT / "controller-runtime" / "pyproject.toml")]
    found = list(pins((_ROOT / _LOCKS[0]).read_text()))
    components = [_base(), own[1], *map(_component, found)]
    depends: dict[str, list[str]] = {each["bom-ref"]: [] for each in (own[0], *components)}
    depends[own[0]["bom-ref"]] = [components[0]["bom-ref"], own[1]["bom-ref"]]
    names = {each.name: each.ref for each in found} | {each["name"]: each["bom-ref"] for each in own}
    for each in found:
        for user in each.users:
            if user in names:
                depends[names[user]].append(each.ref)
    body: JSON = {
        "metadata": {"component": own[0]},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs)} for ref, needs in depends.items()],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }


def provenance(wheels: Sequence[Path]) -> JSON:
    """Return the provenance of ``wheels``."""
    commit = _git("rev-parse", "HEAD")
    dirty = bool(_git("status", "--porcelain", "--untracked-files=no"))
    image, digest = base_image()
    materials = [
        {
            "uri": "git+" + (_git("remote", "get-url", "origin") or "file://."),
            "digest": {"gitCommit": commit},
        },
        {"uri": f"pkg:docker/{image}", "digest": {"sha256": digest}},
        *({"uri": name, "digest": {"sha256": _sha256(_ROOT / name)}} for name in _LOCKS),
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": each.name, "digest": {"sha256": _sha256(each)}} for each in sorted(wheels)],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:trainer-controller-manager:make",
                "externalParameters": {"target": "make wheel", "modified": dirty},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": "make"}},
        },
    }


def base_image() -> tuple[str, str]:
    """Return the name and tag of the image's base, and its digest; the digest is empty if it is not pinned."""
    (named,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", (_ROOT / "Containerfile").read_text())
    image, _, digest = named.partition("@sha256:")
    return image, digest


def _base() -> JSON:
    image, digest = base_image()
    name, _, tag = image.partition(":")
    ref = f"pkg:docker/{name}@{tag}"
    found = {"type": "container", "bom-ref": ref, "purl": ref, "name": name, "version": tag}
    return found | ({"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {})


def _own(path: Path) -> JSON:
    project = tomllib.loads(path.read_text())["project"]
    ref = f"pkg:pypi/{project['name']}@{project['version']}"
    found = {
        "type": "application",
        "bom-ref": ref,
        "purl": ref,
        "name": project["name"],
        "version": project["version"],
    }
    return found | {"licenses": [{"expression": project["license"]}]}


def _component(pin: Pin) -> JSON:
    found: JSON = {
        "type": "library",
        "bom-ref": pin.ref,
        "purl": pin.ref,
        "name": pin.name,
        "version": pin.version,
    }
    try:
        described = metadata.metadata(pin.name)
    except metadata.PackageNotFoundError:
        described = None
    if described is not None and "License-Expression" in described:
        found["licenses"] = [{"expression": described["License-Expression"]}]
    # A package has several distributions, but an installation uses only one of them.
    found["properties"] = [{"name": "distribution:sha256", "value": each} for each in pin.hashes]
    return found


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Write both files into a directory, ``dist`` by default."""
    folder = Path(arguments[0]) if arguments else _ROOT / "dist"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("sbom.cdx.json", bill()),
        ("provenance.json", provenance(list(folder.glob("*.whl")))),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
