# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The bill of materials lists the lock's packages, and the provenance names wheels by their digests."""

import hashlib
import json
import re
from pathlib import Path

from hack import sbom

ROOT = Path(__file__).parents[3]
LOCK = """\
one==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via
    #   -c requirements/runtime.lock
    #   two
two==2.0 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:cc
    # via trainer-controller-manager (pyproject.toml)
three==3.0 ; sys_platform == 'win32' \\
    --hash=sha256:dd
"""


def test_pins_have_version_hashes_and_users_and_those_of_other_systems_are_left_out() -> None:
    assert list(sbom.pins(LOCK)) == [
        sbom.Pin("one", "1.0", ["aa", "bb"], ["two"]),
        sbom.Pin("two", "2.0", ["cc"], ["trainer-controller-manager"]),
    ]


def test_the_bill_lists_the_image() -> None:
    found = sbom.bill()
    names = {each["name"]: each for each in found["components"]}
    locked = re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "requirements" / "image.lock").read_text())
    assert set(locked) | {"python", "controller-runtime"} == set(names)
    assert all(names[each]["properties"] for each in locked)
    (base,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=\S+@sha256:(\w{64})$", (ROOT / "Containerfile").read_text())
    assert names["python"]["hashes"] == [{"alg": "SHA-256", "content": base}]


def test_dependencies_refer_to_components_and_every_component_is_needed() -> None:
    found = sbom.bill()
    root = found["metadata"]["component"]["bom-ref"]
    refs = {each["bom-ref"] for each in found["components"]}
    needs = {each["ref"]: set(each["dependsOn"]) for each in found["dependencies"]}
    assert set(needs) == refs | {root}
    reached, left = set(), [root]
    while left:
        ref = left.pop()
        reached.add(ref)
        left += needs[ref] - reached
    assert reached == refs | {root}


def test_the_same_checkout_has_the_same_bill() -> None:
    assert sbom.bill() == sbom.bill()


def test_the_files_are_written_and_name_the_wheels_by_digest(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "other").write_bytes(b"no wheel")
    assert sbom.main([str(tmp_path)]) == 0
    statement = json.loads((tmp_path / "provenance.json").read_text())
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert statement["subject"] == [{"name": "b.whl", "digest": {"sha256": digest}}]
    definition = statement["predicate"]["buildDefinition"]
    lock = hashlib.sha256((ROOT / "requirements" / "image.lock").read_bytes()).hexdigest()
    assert {"uri": "requirements/image.lock", "digest": {"sha256": lock}} in definition[
        "resolvedDependencies"
    ]
    assert json.loads((tmp_path / "sbom.cdx.json").read_text()) == sbom.bill()
