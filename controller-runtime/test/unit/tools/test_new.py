# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime new``: the files that it writes, and the names and folders that it rejects."""

import ast
import dataclasses
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from controller_runtime.machinery import yaml
from controller_runtime.tools.command import main
from controller_runtime.tools.new import Project, ProjectError, create, render

WEBSITE = Project(name="website-operator", kind="Website")


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_folder_is_the_projects_name_or_the_last_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "website-operator", "--kind", "Website"]) == 0
    assert main(["new", "website-operator", "--kind", "Website", "elsewhere"]) == 0
    assert main(["new", "website-operator", "third", "--kind", "Website"]) == 0
    assert files_below(tmp_path / "elsewhere") == files_below(tmp_path / "website-operator")
    assert files_below(tmp_path / "third") == files_below(tmp_path / "elsewhere")
    assert "to third; its README.md describes the next steps" in capsys.readouterr().out


def test_a_project_contains_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    written = create(WEBSITE, tmp_path)
    assert files_below(tmp_path) == sorted(path.relative_to(tmp_path).as_posix() for path in written)


@pytest.fixture(scope="module")
def website(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("website")
    create(WEBSITE, folder)
    return folder


def test_every_placeholder_is_filled_in_and_every_file_can_be_read(website: Path) -> None:
    for name in files_below(website):
        text = (website / name).read_text()
        assert "{{" not in text, name
        assert not re.search(r"^%%", text, re.MULTILINE), name
        assert text.endswith("\n"), name
        if name.endswith(".py"):
            ast.parse(text)
        elif name.endswith(".yaml"):
            assert list(yaml.load_all(text))
    assert tomllib.loads((website / "pyproject.toml").read_text())["project"]["name"] == "website-operator"


def test_the_resources_of_the_kustomizations_exist(website: Path) -> None:
    for folder in (website / "config", website / "config/webhook"):
        made: Any = yaml.load((folder / "kustomization.yaml").read_text())
        for resource in made["resources"]:
            assert (folder / resource).exists(), resource


def test_without_webhooks_nothing_mentions_them(tmp_path: Path) -> None:
    create(Project(name="plain", kind="Website", webhook=False), tmp_path)
    assert not [name for name in files_below(tmp_path) if "webhook" in name]
    for name in files_below(tmp_path):
        assert "webhook" not in (tmp_path / name).read_text().lower(), name


def test_the_kind_has_the_names_that_were_given(tmp_path: Path) -> None:
    create(
        Project(name="a", kind="Data", group="data.example.org", version="v1beta2", plural="data"), tmp_path
    )
    crd: Any = yaml.load((tmp_path / "config/crd/data.example.org_data.yaml").read_text())
    assert crd["metadata"]["name"] == "data.data.example.org"
    assert crd["spec"]["names"]["kind"] == "Data"
    assert crd["spec"]["versions"][0]["name"] == "v1beta2"
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["message"]["description"]
    sample: Any = yaml.load((tmp_path / "config/samples/sample.yaml").read_text())
    assert (sample["apiVersion"], sample["kind"]) == ("data.example.org/v1beta2", "Data")


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Website", "websites"),
        ("Proxy", "proxies"),
        ("Gateway", "gateways"),
        ("Index", "indexes"),
        ("Batch", "batches"),
    ],
)
def test_the_plural_is_derived_from_the_kind(kind: str, plural: str) -> None:
    assert Project(name="a", kind=kind).resource == plural


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"name": "Website"}, 'the name "Website" must consist of lower case', id="capital"),
        pytest.param({"name": "web_site"}, 'the name "web_site" must consist of lower case', id="underscore"),
        pytest.param({"name": "1st"}, "start with a letter", id="digit first"),
        pytest.param({"name": "../a"}, "must consist of lower case", id="path"),
        pytest.param({"name": "a" * 56}, "at most 55 characters", id="long"),
        pytest.param({"name": "class"}, "is a keyword of Python", id="keyword"),
        pytest.param({"name": "json"}, "standard library", id="standard library"),
        pytest.param({"name": "tests"}, "another folder of the project", id="own folder"),
        pytest.param({"name": "controller-runtime"}, "a package that it imports", id="the library"),
        pytest.param({"name": "pydantic"}, "installed here, from pydantic", id="a dependency"),
        pytest.param({"kind": "website"}, '--kind "website" must be letters and digits', id="small kind"),
        pytest.param({"kind": "Web-site"}, "CamelCase", id="hyphen in the kind"),
        pytest.param({"kind": "None"}, "CamelCase", id="kind is a keyword"),
        pytest.param({"kind": "Annotated"}, "api.py imports something else", id="kind is imported"),
        pytest.param({"group": "example"}, '--group "example" must be', id="group without a dot"),
        pytest.param({"group": "Example.com"}, "lower case domain name", id="capital in the group"),
        pytest.param({"group": "apps.k8s.io"}, "belong to Kubernetes", id="protected group"),
        pytest.param({"version": "1"}, '--version "1" must be', id="version"),
        pytest.param({"plural": "Web sites"}, '--plural "Web sites" must', id="plural"),
    ],
)
def test_a_name_that_kubernetes_or_python_would_refuse_is_refused(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    project = dataclasses.replace(WEBSITE, **options)  # type: ignore[arg-type]  # no case changes the webhook
    with pytest.raises(ProjectError, match=re.escape(problem)):
        create(project, tmp_path / "project")
    assert files_below(tmp_path) == []


def test_a_folder_that_holds_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("mine")
    assert main(["new", "website-operator", "--kind", "Website", str(tmp_path)]) == 1
    assert main(["new", "website-operator", "--kind", "Website", str(tmp_path / "notes")]) == 1
    errors = capsys.readouterr().err
    assert f"the folder {tmp_path} is not empty" in errors
    assert f"{tmp_path / 'notes'} is not a folder" in errors
    assert files_below(tmp_path) == ["notes"]
    with pytest.raises(SystemExit):
        main(["new", "website-operator", "--kind", "Website", "one", "two"])


@pytest.mark.parametrize("kind", ["Result", "ConfigMap", "Reconciler", "Object", "Condition", "Events"])
def test_a_kind_may_be_called_as_something_of_the_library(kind: str) -> None:
    texts = render(Project(name="website-operator", kind=kind))
    tree = ast.parse(texts["website_operator/api.py"])
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes == [f"{kind}Spec", f"{kind}Status", kind]
