# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Roles out of markers: what is joined, what is not, and what is refused."""

from pathlib import Path

import pytest
import yaml

from hack import rbac

ROOT = Path(__file__).parents[3]


def test_rules_are_joined_by_verbs_within_a_group_and_then_across_groups_alike() -> None:
    text = (
        '# +kubebuilder:rbac:groups="",resources=pods;secrets,verbs=list;get\n'
        "# +kubebuilder:rbac:groups=b;a,resources=podgroups,verbs=get\n"
        '# +kubebuilder:rbac:groups="",resources=events,verbs=create\n'
        '# +kubebuilder:rbac:groups="",resources=pods,verbs=get\n'
    )
    assert rbac.rules(rbac.grants(text)) == [
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
    wanted = rbac.collected(sources=[tmp_path])
    named = rbac.resource_names(sources=[tmp_path])
    assert named == {("a", "things", "get"): ("one", "two")}
    assert rbac.rules(wanted, named) == [
        {"apiGroups": ["a"], "resources": ["others"], "verbs": ["get", "list"]},
        {"apiGroups": ["a"], "resources": ["things"], "resourceNames": ["one", "two"], "verbs": ["get"]},
        {"apiGroups": ["a"], "resources": ["things"], "verbs": ["list"]},
    ]


def test_a_marker_without_verbs_is_refused() -> None:
    with pytest.raises(ValueError, match="groups=a,resources=b has no 'verbs'"):
        rbac.grants("# +kubebuilder:rbac:groups=a,resources=b\n")


def test_writing_reports_only_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rbac.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("wrote ") == 3
    (tmp_path / "rbac" / "role.yaml").write_text("old")
    assert rbac.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'rbac' / 'role.yaml'}\n"


def test_the_pod_grouper_lives_with_the_rights_that_kai_gives_its_own() -> None:
    role = yaml.safe_load((ROOT / "test" / "testdata" / "kai" / "podgrouper-role.yaml").read_text())
    given = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    missing = {(group, resource) for group, resource, _ in rbac.collected(rbac.Part.POD_GROUPER) - given}
    # KAI's grouper has a row for it as well, and may not read it either: the walk ends below.
    assert missing == {("nvidia.com", "dynamographdeployments")}
