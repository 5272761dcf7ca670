# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pinned digests of other projects' files are those of the Go modules that go.sum pins."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import third_party as pinned

pytestmark = pytest.mark.integration

Manifest = dict[str, Any]
Kustomize = Callable[[Path], list[Manifest]]


def released(objects: list[Manifest]) -> str:
    """Return objects as a release lists them: in another order, with the tags of the release."""
    text = yaml.dump_all(reversed(objects), Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
    return re.sub(r"\S+/k8s-staging-images/(\w+)/\w+:\S+", r"registry.k8s.io/\1/\1:v9", text)


@pytest.mark.parametrize("name", pinned.PINS)
def test_a_released_file_has_the_pinned_digest(
    name: str, kustomize: Kustomize, third_party: dict[str, Path], tmp_path: Path
) -> None:
    objects = kustomize(third_party[name] / "default")
    file = tmp_path / "manifests.yaml"
    file.write_text(released(objects))
    assert pinned.digest(objects) == pinned.PINS[name].digest
    assert pinned.main([name, str(file)]) == 0

    role = next(each for each in objects if each["kind"] == "ClusterRole")
    role["rules"].append({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
    file.write_text(released(objects))
    assert pinned.main([name, str(file)]) == 1
