# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The initial objects of the cluster, and the rights of its components."""

import base64
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.envtest import Binary, Component, Probe
from pkg import shipped
from pkg.apis.config.v1alpha1 import defaulted

from trainerctl.localcluster import manifests
from trainerctl.localcluster.components import Ports
from trainerctl.localcluster.names import state_directory
from trainerctl.localcluster.nodes import NodeShape, is_usable, node
from trainerctl.localcluster.state import State


def binary(tmp_path: Path, *objects: dict[str, Any]) -> Binary:
    path = tmp_path / "manifests.json"
    path.write_text(json.dumps(objects))
    return Binary(tmp_path / "program", path)


def role(name: str) -> dict[str, Any]:
    return {"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}


def test_jobset_and_the_manager_work_under_their_own_roles_and_nobody_is_made_an_administrator(
    tmp_path: Path,
) -> None:
    rights = manifests.rights(binary(tmp_path, role("manager-role")), binary(tmp_path, role("manager-role")))
    bindings = {
        each["roleRef"]["name"]: [subject["name"] for subject in each["subjects"]]
        for each in rights
        if each["kind"].endswith("Binding")
    }
    assert bindings["jobset-controller-manager"] == ["jobset-controller-manager"]
    assert bindings["kubeflow-trainer-controller-manager"] == ["kubeflow-trainer-controller-manager"]
    assert "cluster-admin" not in bindings
    roles = {each["metadata"]["name"] for each in rights if each["kind"] in {"ClusterRole", "Role"}}
    assert set(bindings) <= roles
    accounts = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in rights
        if each["kind"] == "ServiceAccount"
    }
    assert accounts == {
        ("jobset-system", "jobset-controller-manager"),
        ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    }


@pytest.mark.parametrize("processes", [True, False])
def test_each_rule_of_a_role_says_what_may_be_done_to_what(tmp_path: Path, processes: bool) -> None:
    shipped_role = binary(tmp_path, role("manager-role"))
    rights = manifests.rights(shipped_role, None if processes else shipped_role)
    rules = [rule for each in rights if each["kind"] == "ClusterRole" for rule in each.get("rules", [])]
    assert rules
    for rule in rules:
        assert rule.keys() - {"resourceNames"} == {"apiGroups", "resources", "verbs"}, rule
        assert all(rule.values()), rule


@pytest.mark.parametrize("folder", ["status-server", "failure-evidence"])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_manager_may_look_at_pods_only_with_a_feature_gate_that_needs_it(
    tmp_path: Path, folder: str, enabled: bool
) -> None:
    shipped_role = binary(tmp_path, role("manager-role"))
    rights = manifests.rights(shipped_role, shipped_role, gated=[folder] if enabled else [])
    found = [each["kind"] for each in rights if each["metadata"]["name"] == f"kubeflow-trainer-{folder}"]
    assert found == (["ClusterRole", "ClusterRoleBinding"] if enabled else [])


def test_jobsets_pod_hooks_see_jobsets_pods_only_and_its_other_hooks_everything(tmp_path: Path) -> None:
    hooks = [
        {"name": name, "clientConfig": {"service": {"path": f"/{name}"}}}
        for name in ("mpod.kb.io", "mjobset.kb.io")
    ]
    manifest = {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating-webhook-configuration"},
        "webhooks": hooks,
    }
    (pointed,) = manifests.jobset_webhooks(binary(tmp_path, manifest), "https://127.0.0.1:1", b"ca")
    assert pointed["metadata"]["name"] == "jobset-mutating-webhook-configuration"
    pod, job_set = pointed["webhooks"]
    selector = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
    assert pod["objectSelector"] == selector
    assert "objectSelector" not in job_set
    assert job_set["clientConfig"]["url"] == "https://127.0.0.1:1/mjobset.kb.io"


def test_the_shipped_runtimes_crds_and_webhooks_are_found() -> None:
    kinds = [(each["kind"], each["metadata"]["name"]) for each in manifests.runtimes()]
    assert ("ConfigMap", "kubeflow-trainer-public") in kinds
    assert ("ClusterTrainingRuntime", "torch-distributed") in kinds
    names = {each["metadata"]["name"] for each in shipped.crds()}
    assert "trainjobs.trainer.kubeflow.org" in names
    mutating, validating = manifests.trainer_webhooks("https://127.0.0.1:1", b"ca")
    for manifest, verb, count in ((mutating, "mutate", 1), (validating, "validate", 3)):
        urls = [hook["clientConfig"]["url"] for hook in manifest["webhooks"]]
        assert len(urls) == count
        assert all(url.startswith(f"https://127.0.0.1:1/{verb}-") for url in urls)


def test_a_node_has_what_its_shape_says_and_no_gpus_means_none_are_named() -> None:
    made = node(3, NodeShape(gpus=2), 10250).to_dict()
    assert made["metadata"]["name"] == "node-3"
    assert made["status"]["capacity"] == made["status"]["allocatable"]
    assert made["status"]["capacity"]["nvidia.com/gpu"] == "2"
    assert made["status"]["addresses"] == [{"type": "InternalIP", "address": "127.0.0.1"}]
    assert made["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert "nvidia.com/gpu" not in node(0, NodeShape(gpus=0), 10250).to_dict()["status"]["capacity"]


@pytest.mark.parametrize(
    ("spec", "ready", "usable"),
    [({}, "True", True), ({"taints": [{"key": "not-ready"}]}, "True", False), ({}, "Unknown", False)],
)
def test_a_node_takes_pods_when_it_is_ready_and_untainted(
    spec: dict[str, Any], ready: str, usable: bool
) -> None:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    assert is_usable({"spec": spec, "status": status}) is usable


def test_the_secret_of_the_certificates_is_the_one_that_the_manager_reads(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(b"certificate")
    (tmp_path / "tls.key").write_bytes(b"key")
    secret: Any = manifests.certificates(tmp_path, b"authority")
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == (
        "kubeflow-system",
        defaulted().cert_management.webhook_secret_name,
    )
    assert {name: base64.b64decode(value) for name, value in secret["data"].items()} == {
        "ca.crt": b"authority",
        "tls.crt": b"certificate",
        "tls.key": b"key",
    }


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "A", "a" * 43])
def test_a_cluster_cannot_be_called_what_is_no_directory_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name for a cluster"):
        state_directory(name)


def test_what_is_kept_is_read_again_and_garbage_is_no_cluster(tmp_path: Path) -> None:
    client = Probe("https://x", Path("/ca"), (Path("/c"), Path("/k")))
    components = [
        Component("api", ["/bin/api", "--flag"], client),
        Component("kwok", ["/bin/kwok"], Probe("http://x/healthz"), {"A": "b"}),
        Component("etcd", ["/bin/etcd"]),
    ]
    state = State("https://x", "", 4, components)
    assert State.read(tmp_path) is None
    assert not State.exists(tmp_path)
    state.write(tmp_path)
    assert State.read(tmp_path) == state
    for garbage in ("{", "[" * 100_000, "{}", '{"components": 1}', '{"components": ["etcd"], "probes": {}}'):
        (tmp_path / "cluster.json").write_text(garbage)
        assert State.read(tmp_path) is None
        assert State.exists(tmp_path)


def test_every_component_has_a_port_of_its_own() -> None:
    ports = astuple(Ports.choose())
    assert len(set(ports)) == len(ports)
