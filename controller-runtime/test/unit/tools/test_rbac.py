# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Roles from markers: rules that are joined, rules that are not, and markers that are refused."""

from pathlib import Path

import pytest
import yaml

from controller_runtime.tools import rbac
from controller_runtime.tools.markers import MarkerError


def test_rules_are_joined_by_verbs_within_a_group_and_then_across_groups_alike() -> None:
    text = (
        '# +kubebuilder:rbac:groups="",resources=pods;secrets,verbs=list;get\n'
        "# +kubebuilder:rbac:groups=b;a,resources=podgroups,verbs=get\n"
        '    # +kubebuilder:rbac:groups="",resources=events,verbs=create\n'
        '# +kubebuilder:rbac:groups="",resources=pods,verbs=get\n'
    )
    assert rbac.rules(rbac.grants_in(text)) == [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"]},
        {"apiGroups": ["a", "b"], "resources": ["podgroups"], "verbs": ["get"]},
    ]


def test_a_grant_keeps_its_resource_names_unless_another_marker_grants_every_object(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "# +kubebuilder:rbac:groups=a,resources=things,resourceNames=one,verbs=get;list\n"
        "# +kubebuilder:rbac:groups=a,resources=others,verbs=get;list\n"
    )
    (tmp_path / "b.py").write_text(
        "# +kubebuilder:rbac:groups=a,resources=things,resourceNames=two,verbs=get\n"
        "# +kubebuilder:rbac:groups=a,resources=things,verbs=list\n"
    )
    found = rbac.collect([tmp_path])[rbac.CLUSTER]
    assert {grant: names for grant, names in found.items() if names} == {
        ("a", "things", "get"): ("one", "two")
    }
    assert rbac.rules(found, found) == [
        {"apiGroups": ["a"], "resources": ["others"], "verbs": ["get", "list"]},
        {"apiGroups": ["a"], "resources": ["things"], "resourceNames": ["one", "two"], "verbs": ["get"]},
        {"apiGroups": ["a"], "resources": ["things"], "verbs": ["list"]},
    ]


def test_a_marker_with_a_namespace_belongs_to_the_role_of_that_namespace(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        '# +kubebuilder:rbac:groups="",resources=pods,verbs=*\n'
        "# +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,verbs=get;create\n"
    )
    cluster, system = yaml.safe_load_all(rbac.manifests("operator", rbac.collect([tmp_path])))
    assert (cluster["kind"], cluster["metadata"]) == ("ClusterRole", {"name": "operator"})
    assert cluster["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]
    assert (system["kind"], system["metadata"]) == ("Role", {"name": "operator", "namespace": "system"})
    assert system["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get"]}
    ]


def test_paths_that_are_not_resources_have_rules_of_their_own() -> None:
    text = (
        "# +kubebuilder:rbac:urls=/b;/a,verbs=get\n"
        "# +kubebuilder:rbac:urls=/metrics,verbs=post;get\n"
        '# +kubebuilder:rbac:groups="",resources=pods,verbs=get\n'
    )
    role = yaml.safe_load(rbac.manifest("operator", rbac.grants_in(text)))
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"nonResourceURLs": ["/a", "/b"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get", "post"]},
    ]


def test_code_without_markers_has_a_role_without_rules(tmp_path: Path) -> None:
    role = yaml.safe_load(rbac.manifests("operator", rbac.collect([tmp_path])))
    assert role["kind"] == "ClusterRole"
    assert role["rules"] == []


def test_files_of_installed_packages_and_of_hidden_folders_are_not_read(tmp_path: Path) -> None:
    for name in (".venv/lib/a.py", "venv/site-packages/b.py", "c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# +kubebuilder:rbac:groups={Path(name).stem},resources=r,verbs=get\n")
    assert rbac.collect([tmp_path]) == {"": {("c", "r", "get"): ()}}


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        pytest.param("groups=a,resources=b", "groups=a,resources=b has no field verbs", id="no verbs"),
        pytest.param("resources=b,verbs=get", "has no field groups", id="no groups"),
        pytest.param("urls=/a", "urls=/a has no field verbs", id="a path without verbs"),
        pytest.param("urls=a,verbs=get", "has the URL a, which does not begin with /", id="a relative path"),
        pytest.param(
            "urls=/a,namespace=b,verbs=get", "with urls has the field namespace", id="a path in a Role"
        ),
        pytest.param("groups=a,resources=b,verb=get,verbs=get", "has an unknown field verb", id="a slip"),
        pytest.param(
            "groups=a,resources=b,verbs=get,namespace=c;d", "more than one value: c;d", id="two namespaces"
        ),
    ],
)
def test_a_marker_that_cannot_be_understood_is_refused(marker: str, problem: str) -> None:
    with pytest.raises(MarkerError, match=problem):
        rbac.grants_in(f"# +kubebuilder:rbac:{marker}\n")


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing: no such file or folder"):
        rbac.collect([tmp_path / "missing"])
