# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The releases of a local cluster and the modules of their programs, and the feature gates of Kubernetes' own gangs."""

from __future__ import annotations

import re

import pytest
from controller_runtime.envtest import ETCD, EnvtestError, Tool, ToolGroup, kube_tool
from pkg import shipped

from trainerctl.localcluster.options import Options
from trainerctl.localcluster.tools import JOBSET, JOBSETS, KUBERNETES_RELEASES, KWOK, programs


@pytest.mark.parametrize("kubernetes", KUBERNETES_RELEASES)
@pytest.mark.parametrize("jobset", JOBSETS)
def test_the_programs_are_those_of_the_releases(kubernetes: str, jobset: str) -> None:
    options = Options(kubernetes=kubernetes, jobset=jobset)
    options.check()
    versions = {tool.name: tool.group.version for tool in options.tools}

    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert versions[name].startswith(f"v{kubernetes}.")
    assert versions["jobset-controller"].startswith(f"v{jobset}.")


def test_every_release_of_jobset_has_its_own_place_in_the_cache() -> None:
    assert len({tool.group.key for tool in JOBSETS.values()}) == len(JOBSETS)


@pytest.mark.parametrize(
    ("kubernetes", "gates", "served", "controllers"),
    [
        ("1.35", "GenericWorkload=true,GangScheduling=true", "v1alpha1", []),
        ("1.36", "GenericWorkload=true,GangScheduling=true", "v1alpha2", ["podgroup-protection-controller"]),
        ("1.37", "GenericWorkload=true", "v1beta1", ["podgroup-protection-controller"]),
    ],
)
def test_gangs_need_the_gates_and_the_api_of_the_release(
    kubernetes: str, gates: str, served: str, controllers: list[str]
) -> None:
    options = Options(kubernetes=kubernetes, workloads=True)
    assert options.feature_gates == gates
    assert options.api_server_flags == [
        f"--feature-gates={gates}",
        f"--runtime-config=scheduling.k8s.io/{served}=true",
    ]
    assert options.gang_controllers == controllers


def test_without_gangs_the_components_have_their_default_gates() -> None:
    options = Options(kubernetes="1.37")
    assert (options.feature_gates, options.api_server_flags, options.gang_controllers) == ("", [], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(kubernetes="1.20"), r"Kubernetes 1\.20 is not among the pinned releases: 1\.34"),
        (Options(jobset="0.9"), r"JobSet 0\.9 is not among the pinned releases: 0\.10, 0\.11, 0\.12"),
        (Options(kubernetes="1.34", workloads=True), r"Kubernetes 1\.34 has no gangs"),
        (Options(kubernetes="1.36", coscheduling=True), r"built for Kubernetes 1\.35"),
        (Options(prometheus=True, manager=False), "Prometheus scrapes the manager, which is not started"),
        (Options(coscheduling=True, workloads=True), "does not schedule Kubernetes' own gangs"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_starts(options: Options, message: str) -> None:
    with pytest.raises(EnvtestError, match=message):
        options.check()


@pytest.mark.parametrize(
    ("gates", "roles"),
    [
        ({}, ["failure-evidence"]),
        ({"TrainJobStatus": True}, ["failure-evidence", "status-server"]),
        ({"FailureEvidence": False}, []),
        ({"AllAlpha": False}, []),
        ({"TTLAfterFinished": True}, ["failure-evidence", "ttl-after-finished"]),
        ({"AllAlpha": True, "TrainJobStatus": False}, ["failure-evidence", "ttl-after-finished"]),
    ],
)
def test_a_gate_of_the_manager_brings_its_role(gates: dict[str, bool], roles: list[str]) -> None:
    assert Options(manager_gates=gates).gated_roles == roles
    assert Options(manager_gates=gates).serves_status == ("status-server" in roles)


def test_every_role_of_a_feature_gate_is_known() -> None:
    every = {"AllAlpha": True, "AllBeta": True}
    roles = shipped.config_directory().glob("*/role.yaml")
    needed = {path.parent.name for path in roles if "for the feature gate" in path.read_text()}
    assert set(Options(manager_gates=every).gated_roles) == needed


def test_simulated_nodes_alone_need_kwok() -> None:
    assert "kwok" in {tool.name for tool in Options().tools}
    assert "kwok" not in {tool.name for tool in Options(run_processes=True).tools}


def test_processes_need_linux() -> None:
    Options().check("darwin")
    with pytest.raises(EnvtestError, match="only on Linux"):
        Options(run_processes=True).check("darwin")


NEWER = {"k8s.io/cri-api", "k8s.io/cri-client"}
"""Modules that kwok needs in another version than Kubernetes; together they have only four packages."""


def versions(group: ToolGroup) -> dict[str, str]:
    """Return the version of each module of a group, after replacements."""
    text = (group.directory / "go.mod").read_text()
    required: dict[str, str] = dict(re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE))
    replaced: dict[str, str] = dict(re.findall(r"^\s+(\S+) => \S+ (v\S+)$", text, re.MULTILINE))
    return {module: replaced.get(module, version) for module, version in required.items()}


@pytest.mark.parametrize("tool", [ETCD, JOBSET, KWOK], ids=lambda tool: tool.name)
def test_shared_modules_have_the_versions_of_the_kubernetes_group(tool: Tool) -> None:
    kubernetes = versions(kube_tool("kube-apiserver").group)
    own = versions(tool.group)
    shared = (own.keys() & kubernetes.keys()) - NEWER
    assert len(shared) > 30
    assert {name: own[name] for name in shared} == {name: kubernetes[name] for name in shared}
    if tool is not ETCD:
        assert "k8s.io/client-go" in shared


def test_the_programs_of_a_default_cluster_come_from_these_groups() -> None:
    groups = {tool.group for tool in programs()}
    assert groups == {ETCD.group, JOBSET.group, KWOK.group, kube_tool("kube-apiserver").group}
