# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of a default cluster are built from the same versions of the modules that they share."""

import re

import pytest
from controller_runtime.envtest import ETCD, Tool, ToolGroup, kube_tool

from trainerctl.localcluster.tools import JOBSET, KWOK, programs

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
