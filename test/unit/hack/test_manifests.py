# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""config/crd: made from the models, up to date, and the same to a client as the reference."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import manifests

ROOT = Path(__file__).resolve().parents[3]
OWN_ANNOTATION = "controller-gen.kubebuilder.io/version"


def test_the_committed_files_are_those_the_models_make() -> None:
    held = {
        str(path.relative_to(manifests.DIRECTORY)): path.read_text()
        for path in manifests.DIRECTORY.rglob("*")
        if path.is_file()
    }
    stale = sorted(name for name, text in manifests.render().items() if held.pop(name, None) != text)
    assert not stale, f"run `make manifests`: {stale}"
    assert not held, f"nothing makes these files: {sorted(held)}"


def test_writing_reports_only_what_changed(tmp_path: Path) -> None:
    assert len(manifests.write(tmp_path)) == len(manifests.render())
    assert manifests.write(tmp_path) == []
    (tmp_path / "kustomization.yaml").write_text("old")
    assert manifests.write(tmp_path) == [tmp_path / "kustomization.yaml"]


def test_yaml_and_json_say_the_same() -> None:
    files = manifests.render()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name, text in files.items():
        if name.startswith("bases/"):
            twin = files[name.replace("bases/", "json/").replace(".yaml", ".json")]
            assert yaml.load(text, Loader=loader) == json.loads(twin)


def test_the_record_can_be_taken_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manifests.main(["--record", str(tmp_path), "--kubernetes-version", "1.0"]) == 2
    assert "cannot be recorded" in capsys.readouterr().err


def test_our_own_fields_are_described_and_kubernetes_own_are_not() -> None:
    crd = json.loads(manifests.render()["json/trainer.kubeflow.org_trainjobs.json"])
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert all("description" in field for field in spec["properties"].values())
    overrides = spec["properties"]["podTemplateOverrides"]["items"]["properties"]["spec"]["properties"]
    assert "description" in overrides["tolerations"]
    assert '"description"' not in json.dumps(overrides["tolerations"]["items"])


def reference() -> Path:
    folder = Path(os.environ.get("TRAINER_REFERENCE") or ROOT / ".." / "shared" / "reference").resolve()
    crds = folder / "crds" / "trainer-v2.1.0"
    if not crds.is_dir():
        pytest.skip(f"the reference CRDs are not at {crds}")
    return crds


def differences(want: Any, got: Any, path: str) -> Iterator[str]:
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            if (
                key == "description"
                and isinstance(want.get(key, ""), str)
                and isinstance(got.get(key, ""), str)
            ):
                continue
            if key not in got:
                yield f"lacks   {path}.{key}: {want[key]!r:.200}"
            elif key not in want:
                yield f"adds    {path}.{key}: {got[key]!r:.200}"
            else:
                yield from differences(want[key], got[key], f"{path}.{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (left, right) in enumerate(zip(want, got, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif want != got:
        yield f"differs {path}: {want!r:.200} != {got!r:.200}"


PLURALS = ["trainjobs", "trainingruntimes", "clustertrainingruntimes"]
# What the structures come to that equal the reference's, for a machine without the reference.
DIGESTS = {
    "trainjobs": "9e2c9dd40443013f",
    "trainingruntimes": "8ae7f9c9744eee48",
    "clustertrainingruntimes": "31ca6d90bce197d5",
}
STATE = {"name": "State", "type": "string", "jsonPath": '.status.conditions[?(@.status=="True")].type'}


def bare(node: Any) -> Any:
    """A schema without its descriptions."""
    if isinstance(node, dict):
        return {k: bare(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
    return [bare(each) for each in node] if isinstance(node, list) else node


def digest(crd: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(bare(crd), sort_keys=True).encode()).hexdigest()[:16]


def wanted(stem: str) -> dict[str, Any]:
    """The reference's CRD, but for the one column in which we differ on purpose."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    want: dict[str, Any] = yaml.load((reference() / f"{stem}.yaml").read_text(), Loader=loader)
    del want["metadata"]["annotations"][OWN_ANNOTATION]
    if not want["metadata"]["annotations"]:
        del want["metadata"]["annotations"]
    for version in want["spec"]["versions"]:
        columns = version.get("additionalPrinterColumns", [])
        columns[:] = [STATE if column["name"] == "State" else column for column in columns]
    return want


@pytest.mark.parametrize("plural", PLURALS)
def test_the_schema_is_the_reference_s_but_for_descriptions(plural: str) -> None:
    stem = f"trainer.kubeflow.org_{plural}"
    want = wanted(stem)
    got = json.loads(manifests.render()[f"json/{stem}.json"])
    found = list(differences(want, got, plural))
    assert not found, "\n".join(found)
    assert DIGESTS[plural] == digest(want), "the pinned digest is not the reference's"


@pytest.mark.parametrize("plural", PLURALS)
def test_the_structure_is_the_pinned_one(plural: str) -> None:
    assert (
        digest(json.loads(manifests.render()[f"json/trainer.kubeflow.org_{plural}.json"])) == DIGESTS[plural]
    )
