# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Manifests from files, and webhook configurations for a server on loopback."""

import json
from pathlib import Path

import pytest

from controller_runtime.envtest import open_crd, point_at, read_manifests
from controller_runtime.machinery import GVK

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}


def test_a_folder_is_read_by_file_name_and_lists_are_flattened(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NAMESPACE]}))
    (tmp_path / "a.yaml").write_text(
        "---\n---\napiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Pod\n"
    )
    (tmp_path / "README.md").write_text("not a manifest")
    assert [each["kind"] for each in read_manifests(tmp_path, NAMESPACE)] == [
        "Secret",
        "Pod",
        "Namespace",
        "Namespace",
    ]


@pytest.mark.parametrize(
    ("group", "plural", "name"),
    [("example.com", "", "topologys.example.com"), ("x-k8s.io", "topologies", "topologies.x-k8s.io")],
)
def test_an_open_crd_accepts_any_fields_of_a_kind(group: str, plural: str, name: str) -> None:
    crd = open_crd(GVK(group, "v1", "Topology"), plural, namespaced=not plural)
    assert crd["metadata"]["name"] == name
    assert ("annotations" in crd["metadata"]) == group.endswith("k8s.io")
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == (group, "Cluster" if plural else "Namespaced")
    (version,) = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.yaml", "a: [", "line 2: did not find expected node content"),
        ("a.json", "{", "Expecting property name"),
        ("a.yaml", "apiVersion: v1\nkind: Pod\n---\nkind: Pod\n", "document 2 has no apiVersion and kind"),
        ("a.yaml", "- 1\n", "document 1 has no apiVersion and kind"),
    ],
)
def test_a_file_that_holds_no_manifests_is_named_in_one_line(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=complaint) as caught:
        read_manifests(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_hooks_are_called_at_the_url_with_their_own_path_and_the_original_is_not_changed() -> None:
    hook = {
        "name": "a.b.c",
        "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/validate"}},
    }
    manifest = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "generic"}, "webhooks": [hook]}
    pointed = point_at(manifest, "https://127.0.0.1:1/", b"ca", name="ours")
    assert pointed["metadata"]["name"] == "ours"
    client = {"url": "https://127.0.0.1:1/validate", "caBundle": "Y2E="}
    assert pointed["webhooks"] == [{"name": "a.b.c", "clientConfig": client}]
    assert manifest["metadata"] == {"name": "generic"}
    assert "service" in hook["clientConfig"]
