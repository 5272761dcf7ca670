# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""config/crd is generated from the models, up to date, and equal to the reference for clients."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import manifests
from hack.__main__ import generated

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "config" / "crd"


def test_the_committed_files_are_those_the_models_make() -> None:
    texts = {folder / name: text for folder, found in generated(ROOT) for name, text in found.items()}
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    assert not stale, f"run `make manifests`: {stale}"
    held = {str(path.relative_to(CRDS)) for path in CRDS.rglob("*") if path.is_file()}
    assert held == manifests.render().keys()


def test_yaml_and_json_say_the_same() -> None:
    found = manifests.render()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name, text in found.items():
        if name.startswith("bases/"):
            twin = found[name.replace("bases/", "json/").replace(".yaml", ".json")]
            assert yaml.load(text, Loader=loader) == json.loads(twin)


def test_our_own_fields_are_described_and_kubernetes_own_are_not() -> None:
    crd = json.loads(manifests.render()["json/trainer.kubeflow.org_trainjobs.json"])
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert all("description" in field for field in spec["properties"].values())
    overrides = spec["properties"]["podTemplateOverrides"]["items"]["properties"]["spec"]["properties"]
    assert "description" in overrides["tolerations"]
    assert '"description"' not in json.dumps(overrides["tolerations"]["items"])


def reference(release: str, stem: str) -> dict[str, Any]:
    folder = Path(os.environ.get("TRAINER_REFERENCE") or ROOT / ".." / "shared" / "reference").resolve()
    crds = folder / "crds" / f"trainer-{release}"
    if not crds.is_dir():
        pytest.skip(f"the reference CRDs are not at {crds}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load((crds / f"{stem}.yaml").read_text(), Loader=loader)
    return found


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
# Digests of the expected schemas, to check the CRDs on a machine that does not have the references.
DIGESTS = {
    "trainjobs": "0f7b3a3a6045c499",
    "trainingruntimes": "c37f9a410b346331",
    "clustertrainingruntimes": "f63b8fef003c617b",
}
STATE = {
    "name": "State",
    "type": "string",
    "jsonPath": '.status.conditions[ ?(@.type=="Complete"), ?(@.type=="Failed"), ?(@.status=="True")].type',
}
ELASTIC = {
    "message": "numNodes should not be set if torch.elasticPolicy is configured",
    "rule": "!(has(self.numNodes) && (has(self.torch) && has(self.torch.elasticPolicy)))",
}
TTL = {"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**31 - 1}
INT32 = {"minimum": -(2**31), "maximum": 2**31 - 1}
# Go's typed clients cannot decode larger numbers, and would fail for all objects of the kind.
BOUNDED: dict[str, list[tuple[str, ...]]] = {
    "trainjobs": [("spec", "trainer", "numNodes"), ("spec", "trainer", "numProcPerNode")],
    "trainingruntimes": [
        ("spec", "mlPolicy", "numNodes"),
        ("spec", "mlPolicy", "torch", "numProcPerNode"),
        ("spec", "mlPolicy", "mpi", "numProcPerNode"),
        ("spec", "mlPolicy", "flux", "numProcPerNode"),
    ],
}


def bare(node: Any) -> Any:
    """Return a schema without its descriptions."""
    if isinstance(node, dict):
        return {k: bare(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
    return [bare(each) for each in node] if isinstance(node, list) else node


def digest(crd: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(bare(crd), sort_keys=True).encode()).hexdigest()[:16]


def union(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that admits every object that one of two schemas admits.

    It has only the constraints that both of them have.
    """
    if "x-kubernetes-int-or-string" in first and second.get("type") == "integer":
        return first
    merged: dict[str, Any] = {}
    for key in first.keys() & second.keys():
        left, right = first[key], second[key]
        if key == "properties":
            merged[key] = {
                name: union(left[name], right[name])
                if name in left and name in right
                else left.get(name, right.get(name))
                for name in left.keys() | right.keys()
            }
        elif key in ("items", "additionalProperties"):
            merged[key] = union(left, right)
        elif key == "required":
            merged[key] = [name for name in left if name in right]
        elif key == "enum":
            merged[key] = left + [value for value in right if value not in left]
        elif key == "x-kubernetes-validations":
            known = {each["rule"] for each in left}
            merged[key] = [each for each in right if each["rule"] in known]
        else:
            assert left == right, f"{key}: {left!r:.200} != {right!r:.200}"
            merged[key] = left
    return merged


PATCHED_POD = (
    "trainingRuntimeSpec",
    "template",
    "spec",
    "replicatedJobs",
    "template",
    "spec",
    "template",
    "spec",
)


def _at(node: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the properties of the schema at a path of fields; a list on the path stands for its items."""
    for name in names:
        node = node.get("items", node)["properties"][name]
    found: dict[str, Any] = node["properties"]
    return found


def wanted(plural: str) -> Any:
    """Return the union of the CRDs of v2.1.0 and v2.3.0, with our deliberate changes."""
    stem = f"trainer.kubeflow.org_{plural}"
    first, want = bare(reference("v2.1.0", stem)), bare(reference("v2.3.0", stem))
    del want["metadata"]["annotations"]
    (old,), (version,) = first["spec"]["versions"], want["spec"]["versions"]
    columns = version.get("additionalPrinterColumns", [])
    columns[:] = [STATE if column["name"] == "State" else column for column in columns]
    newer = version["schema"]["openAPIV3Schema"]
    schema: dict[str, Any] = union(old["schema"]["openAPIV3Schema"], newer)
    version["schema"]["openAPIV3Schema"] = schema
    if plural != "trainjobs":
        policy = schema["properties"]["spec"]["properties"]["mlPolicy"]
        one_of_five = newer["properties"]["spec"]["properties"]["mlPolicy"]["x-kubernetes-validations"]
        policy["x-kubernetes-validations"] = [ELASTIC, *one_of_five]
        _at(schema, "spec", "podGroupPolicy")["workload"] = {"type": "object"}
        _at(schema, "spec")["runPolicy"] = {"type": "object", "properties": {"ttlSecondsAfterFinished": TTL}}
    if plural == "trainjobs":
        _at(schema, "spec")["ttlSecondsAfterFinished"] = TTL
        schema["properties"]["status"]["properties"]["executionAttempts"] = TTL  # it has the same range
        # Both volume fields have v2.3.0's schema, because we generate both from one Kubernetes release.
        spec = schema["properties"]["spec"]["properties"]
        overridden = spec["podTemplateOverrides"]["items"]["properties"]["spec"]["properties"]
        overridden["volumes"]["items"] = _at(spec["runtimePatches"], *PATCHED_POD)["volumes"]["items"]
    for path in BOUNDED[plural.removeprefix("cluster")]:
        *above, last = path
        _at(schema, *above)[last].update(INT32)
    return want


@pytest.mark.parametrize("plural", PLURALS)
def test_the_schema_is_the_union_of_the_references(plural: str) -> None:
    want = wanted(plural)
    got = json.loads(manifests.render()[f"json/trainer.kubeflow.org_{plural}.json"])
    found = list(differences(want, bare(got), plural))
    assert not found, "\n".join(found)
    assert DIGESTS[plural] == digest(want), "the pinned digest is not that of the references"


@pytest.mark.parametrize("plural", PLURALS)
def test_the_structure_is_the_pinned_one(plural: str) -> None:
    assert (
        digest(json.loads(manifests.render()[f"json/trainer.kubeflow.org_{plural}.json"])) == DIGESTS[plural]
    )
