# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""KAI-Scheduler in a local cluster: the checks before anything starts, and the installed objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from controller_runtime.envtest import EnvtestError
from pkg.podgrouper import Rules, rules_of

from trainerctl.localcluster import kai


@pytest.fixture
def programs(tmp_path: Path) -> kai.Programs:
    for name in ("scheduler", "binder"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return kai.Programs(tmp_path / "scheduler", tmp_path / "binder")


def test_without_a_folder_the_crds_are_those_of_v0_17(programs: kai.Programs) -> None:
    programs.check()
    found = {crd["metadata"]["name"]: crd for crd in kai.crds(programs)}

    assert set(found) == {
        "bindrequests.scheduling.run.ai",
        "podgroups.scheduling.run.ai",
        "queues.scheduling.run.ai",
        "topologies.kai.scheduler",
    }
    (version,) = found["podgroups.scheduling.run.ai"]["spec"]["versions"]
    assert rules_of(version["schema"]["openAPIV3Schema"]["properties"]) is Rules.V0_17


def test_a_folder_has_the_crds_of_a_release(programs: kai.Programs, tmp_path: Path) -> None:
    crd = {"kind": "CustomResourceDefinition", "metadata": {"name": "podgroups.scheduling.run.ai"}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([crd, {"kind": "Role"}]))

    assert kai.crds(kai.Programs(programs.scheduler, programs.binder, tmp_path)) == [crd]


def test_a_program_that_cannot_run_is_named_before_anything_starts(
    programs: kai.Programs, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(EnvtestError, match="missing is not a program that can be run"):
        kai.Programs(programs.scheduler, missing).check()
    programs.binder.chmod(0o644)
    with pytest.raises(EnvtestError, match="binder is not a program that can be run"):
        programs.check()


@pytest.mark.parametrize(
    ("text", "message"), [("a: [", r"a\.yaml cannot be read: "), ("a: b", "has no CRD of podgroups")]
)
def test_a_folder_without_crds_is_named(
    text: str, message: str, programs: kai.Programs, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(EnvtestError, match=message):
        kai.Programs(programs.scheduler, programs.binder, tmp_path).check()


def test_the_manager_may_group_pods_and_the_default_queue_exists() -> None:
    account = {"kind": "ServiceAccount", "name": "a", "namespace": "b"}
    made = kai.objects(account)

    bound = {each["roleRef"]["name"]: each["subjects"] for each in made if "roleRef" in each}
    (role,) = (each["metadata"]["name"] for each in made if each["kind"] == "ClusterRole")
    assert bound[role] == [account]
    assert [each["metadata"]["name"] for each in kai.queues()] == [kai.PARENT_QUEUE, "default-queue"]


def test_no_server_of_the_programs_listens_beyond_loopback(programs: kai.Programs) -> None:
    scheduler, binder = (list(each.argv) for each in kai.components(programs, Path("k"), 1, 2))
    assert "--listen-address=127.0.0.1:1" in scheduler
    assert "--plugin-server-port=-1" in scheduler
    assert {"--metrics-bind-address=127.0.0.1:2", "--health-probe-bind-address=0"} <= set(binder)
