# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager, the library, the tool, the chart and the images of the manifests have one version."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_everything_that_is_released_together_has_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    library = tomllib.loads((ROOT / "controller-runtime/pyproject.toml").read_text())["project"]
    version = project["version"]
    assert library["version"] == version
    tool = tomllib.loads((ROOT / "trainerctl/pyproject.toml").read_text())["project"]
    assert tool["version"] == version
    major, minor, _ = map(int, version.split("."))
    assert f"controller-runtime>={major}.{minor},<{major}.{minor + 1}" in project["dependencies"]
    assert {
        f"{name}>={major}.{minor},<{major}.{minor + 1}" for name in (project["name"], library["name"])
    } <= {*tool["dependencies"]}
    assert f"\nversion: {version}\n" in (ROOT / "charts/kubeflow-trainer/Chart.yaml").read_text()
    named = {
        (str(path.relative_to(ROOT)), tag)
        for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("config/**/kustomization.yaml")]
        for tag in re.findall(
            r"trainer-controller-manager(?::|,image\.tag=|\n +newTag: )(\d[\w.]*)", path.read_text()
        )
    }
    assert len(named) >= 5
    assert {tag for _, tag in named} == {version}, named
