# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Manifests from files, and webhook configurations for a server on loopback."""

import json
import math
from pathlib import Path

import anyio
import pytest

from controller_runtime.client import LiveClient
from controller_runtime.envtest import (
    EventuallyError,
    open_crd,
    point_at,
    read_manifests,
    select_namespaces,
    wait_established,
)
from controller_runtime.machinery import GVK
from controller_runtime.rest import FakeResponse, FakeTransport, Request, RESTMapper

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


def test_hooks_are_called_in_the_selected_namespaces_that_their_own_selector_allows() -> None:
    own = {"key": "team", "operator": "Exists"}
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [own]}
    manifest = {"webhooks": [{"name": "any"}, {"name": "some", "namespaceSelector": selector}]}
    selected = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["x", "y"]}
    first, second = select_namespaces(manifest, ("x", "y"))["webhooks"]
    assert first["namespaceSelector"] == {"matchExpressions": [selected]}
    assert second["namespaceSelector"] == {"matchLabels": {"a": "b"}, "matchExpressions": [own, selected]}
    assert selector["matchExpressions"] == [own]


class Apiserver:
    """Serves two of the three versions of a CRD, after some seconds; the CRD is established after some seconds."""

    def __init__(self, established: float, v1: float = 0, v2: float = 0) -> None:
        self._crd = open_crd(GVK("example.com", "v1", "Boat"))
        (version,) = self._crd["spec"]["versions"]
        self._crd["spec"]["versions"] += [
            {**version, "name": "v2", "storage": False},
            {**version, "name": "v3", "storage": False, "served": False},
        ]
        self._established = established
        self._shown = {"apiextensions.k8s.io/v1": 0.0, "example.com/v1": v1, "example.com/v2": v2}
        self._began = anyio.current_time()
        transport = FakeTransport(self._answer)
        self.client = LiveClient(transport, RESTMapper(transport))

    @property
    def age(self) -> float:
        return anyio.current_time() - self._began

    def _answer(self, request: Request) -> FakeResponse:
        if request.path.endswith("/customresourcedefinitions/boats.example.com"):
            conditions = [{"type": "Established", "status": str(self.age >= self._established)}]
            return FakeResponse(200, {**self._crd, "status": {"conditions": conditions}})
        if self.age < self._shown.get(request.path.removeprefix("/apis/"), math.inf):
            return FakeResponse(404, {"kind": "Status", "reason": "NotFound"})
        crds = {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": False}
        boats = {"name": "boats", "kind": "Boat", "namespaced": True}
        return FakeResponse(200, {"resources": [crds if "apiextensions" in request.path else boats]})


@pytest.mark.parametrize("seconds", [(6, 0, 0), (0, 6, 0), (0, 0, 6)], ids=["condition", "stored", "served"])
async def test_a_crd_is_awaited_until_discovery_shows_every_served_version(seconds: tuple[int, ...]) -> None:
    server = Apiserver(*seconds)
    await wait_established(server.client, ["boats.example.com"])
    assert server.age == pytest.approx(6, abs=0.1)


async def test_a_crd_that_is_not_established_in_time_is_named_with_its_conditions() -> None:
    server = Apiserver(established=40)
    with pytest.raises(EventuallyError, match=r"CRD boats\.example\.com .*'Established': 'False'"):
        await wait_established(server.client, ["boats.example.com"], timeout=35)
    assert server.age == 35
