# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each part of the program has a role with the permissions that its markers declare."""

from pathlib import Path

import yaml

from hack import rbac

ROOT = Path(__file__).parents[3]


def test_a_folder_or_a_module_with_a_role_of_its_own_keeps_its_grants_out_of_the_managers(
    tmp_path: Path,
) -> None:
    for name, resource in (
        ("podgrouper/a.py", "pods"),
        ("metrics/filters.py", "reviews"),
        ("statusserver/a.py", "tokens"),
        ("controller/evidence.py", "failures"),
        ("controller/ttl_after_finished.py", "finished"),
        ("b.py", "jobs"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# +kubebuilder:rbac:groups=a,resources={resource},verbs=get\n")
    found = {part: rbac.collected(part, sources=[tmp_path]) for part in rbac.Part}
    assert found == {
        rbac.Part.MANAGER: {("a", "jobs", "get")},
        rbac.Part.POD_GROUPER: {("a", "pods", "get")},
        rbac.Part.METRICS: {("a", "reviews", "get")},
        rbac.Part.STATUS_SERVER: {("a", "tokens", "get")},
        rbac.Part.FAILURE_EVIDENCE: {("a", "failures", "get")},
        rbac.Part.TTL_AFTER_FINISHED: {("a", "finished", "get")},
    }


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
    # KAI's grouper handles DynamoGraphDeployments but may not read them, so its search for owners ends below one.
    # Without permission to read Kubernetes' own gangs, their pods are grouped by their owner.
    gangs = {("scheduling.k8s.io", "podgroups"), ("scheduling.k8s.io", "workloads")}
    # KAI v0.13 has no groupers for these kinds, and v0.17 permits reading Karta objects.
    ours = {
        ("apps.nvidia.com", "nimservices"),
        ("kubeflow.org", "paddlejobs"),
        ("ray.io", "raycronjobs"),
        ("run.ai", "kartas"),
    }
    assert missing == {("nvidia.com", "dynamographdeployments"), *gangs, *ours}
