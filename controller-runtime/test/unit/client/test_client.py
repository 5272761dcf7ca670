# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""LiveClient: each call is one request, each result an object of the requested kind. Writes are logged."""

import io
import json
from typing import Any

import pytest

from controller_runtime import client, log, rest
from controller_runtime.apis.core.v1 import ConfigMap, Node, Pod
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.client.live import log_write
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, Resource, errors, metadata_only, unstructured
from controller_runtime.rest import FakeResponse, FakeTransport
from controller_runtime.rest import request as requests
from controller_runtime.rest.request import APPLY

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7"},
    "spec": {"nodeName": "x"},
}


def serving(body: object, status: int = 200) -> tuple[LiveClient, list[rest.Request]]:
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(status, body))
    return LiveClient(transport), transport.requests


async def test_get_returns_the_kind_that_was_asked_for() -> None:
    client, requests = serving(POD)
    found = await client.get(Pod, ("n", "p"))
    assert isinstance(found, Pod)
    assert requests[0].target == "/api/v1/namespaces/n/pods/p"


async def test_a_list_names_its_items_and_keeps_its_own_metadata() -> None:
    items = [{"metadata": {"name": name}, "data": {"k": name}} for name in "ab"]
    metadata = {"resourceVersion": "9", "continue": "more", "remainingItemCount": 3}
    client, requests = serving({"kind": "ConfigMapList", "metadata": metadata, "items": items})
    found = await client.list(ConfigMap, namespace="n", labels={"a": "b"}, limit=2)
    assert [(each.api_version, each.kind, each.name) for each in found] == [
        ("v1", "ConfigMap", "a"),
        ("v1", "ConfigMap", "b"),
    ]
    assert (found.resource_version, found.continue_token, found.remaining) == ("9", "more", 3)
    assert requests[0].target == "/api/v1/namespaces/n/configmaps?labelSelector=a%3Db&limit=2"


async def test_a_list_without_items_is_empty() -> None:
    client, _ = serving({"metadata": {}, "items": None})
    assert await client.list(Pod) == []


async def test_metadata_carries_the_names_of_its_kind() -> None:
    client, requests = serving(
        {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": POD["metadata"]}
    )
    found = await client.get(metadata_only(Pod), ("n", "p"))
    assert (found.api_version, found.kind, found.name) == ("v1", "Pod", "p")
    assert "PartialObjectMetadata" in requests[0].headers["Accept"]


async def test_a_kind_without_a_model_is_found_by_discovery() -> None:
    def answer(request: rest.Request) -> rest.Response:
        if request.path == "/apis/example.org/v1":
            return rest.FakeResponse(
                200, {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": True}]}
            )
        return rest.FakeResponse(200, {"metadata": {"name": "w"}})

    transport = rest.FakeTransport(answer)
    await LiveClient(transport).get(unstructured(GVK("example.org", "v1", "Widget")), ("n", "w"))
    assert transport.requests[-1].path == "/apis/example.org/v1/namespaces/n/widgets/w"


async def test_writes_carry_owner_and_dry_run() -> None:
    client, requests = serving(POD)
    pod = Pod.from_dict(POD)
    await client.create(pod, field_owner="me")
    await client.update(pod, dry_run=True)
    await client.status.update(pod)
    await client.patch(pod, merge_from(pod), field_owner="me")
    await client.apply(pod, field_owner="me", force=True)
    await client.status.apply(pod, field_owner="me")
    assert [(each.method, each.target.removeprefix("/api/v1/namespaces/n")) for each in requests] == [
        ("POST", "/pods?fieldManager=me"),
        ("PUT", "/pods/p?dryRun=All"),
        ("PUT", "/pods/p/status"),
        ("PATCH", "/pods/p?fieldManager=me"),
        ("PATCH", "/pods/p?fieldManager=me&force=true"),
        ("PATCH", "/pods/p/status?fieldManager=me"),
    ]
    assert [each.body for each in requests[3:5]] == [b"{}", pod.to_json()]


async def test_an_apply_configuration_has_no_managed_fields() -> None:
    client, requests = serving(POD)
    pod = Pod.from_dict({**POD, "metadata": {**POD["metadata"], "managedFields": [{"manager": "x"}]}})
    await client.apply(pod, field_owner="me")
    assert json.loads(requests[0].body or b"") == POD
    assert pod.metadata.managed_fields, "the argument is the caller's"


async def test_delete_sends_its_options() -> None:
    client, requests = serving({"kind": "Status", "status": "Success"})
    await client.delete(
        Pod.from_dict(POD), propagation="Foreground", grace_period_seconds=0, preconditions={"uid": "u"}
    )
    assert json.loads(requests[0].body or b"") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }
    await client.delete_all_of(Node, labels="a=b")
    assert requests[1].target == "/api/v1/nodes?labelSelector=a%3Db"


@pytest.mark.parametrize(
    ("answer", "exists"),
    [
        pytest.param({"kind": "Status", "status": "Success"}, False, id="a status"),
        pytest.param(POD, False, id="the last state"),
        pytest.param({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}, True, id="grace"),
        pytest.param({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}, False, id="no grace"),
        pytest.param({"deletionTimestamp": "t", "finalizers": ["a/x"]}, True, id="finalizers"),
        pytest.param(
            {
                **POD,
                "metadata": {**POD["metadata"], "deletionTimestamp": "t"},
                "spec": {"finalizers": ["kubernetes"]},
            },
            True,
            id="finalizers in the spec, as in a namespace",
        ),
    ],
)
async def test_remove_tells_whether_the_object_is_still_there(answer: dict[str, Any], exists: bool) -> None:
    body = answer if "kind" in answer else {**POD, "metadata": {**POD["metadata"], **answer}}
    client, _ = serving(body)
    assert (await client.remove(Pod.from_dict(POD)) is not None) == exists


async def test_a_refusal_is_raised() -> None:
    status = {"kind": "Status", "reason": "NotFound", "message": 'pods "p" not found', "code": 404}
    client, _ = serving(status, 404)
    with pytest.raises(errors.NotFoundError, match=r'^pods "p" not found$'):
        await client.get(Pod, ("n", "p"))


WIDE = {f"k{number}": "" for number in range(100_000)}
MANAGED = {"managedFields": [{"manager": "m", "fieldsV1": {f"f:{number}": {} for number in range(100_000)}}]}


async def test_an_object_beyond_the_bounds_on_its_shape_is_an_error_of_the_read() -> None:
    client, _ = serving({"kind": "ConfigMap", "metadata": {"name": "c", **MANAGED}, "data": WIDE})
    with pytest.raises(rest.AnswerError, match="not decoded: more than 80000 items"):
        await client.get(ConfigMap, ("n", "c"))


async def test_a_list_leaves_out_what_is_beyond_the_bounds_on_its_shape() -> None:
    narrow = {"metadata": {"name": "narrow", **MANAGED}, "data": {"k": "v"}}
    client, _ = serving(
        {"kind": "ConfigMapList", "items": [{"metadata": {"name": "w"}, "data": WIDE}, narrow]}
    )
    assert [each.name for each in await client.list(ConfigMap)] == ["narrow"]


async def test_managed_fields_beyond_the_bounds_are_dropped_and_the_rest_is_read() -> None:
    client, _ = serving({"kind": "ConfigMap", "metadata": {"name": "c", **MANAGED}, "data": {"k": "v"}})
    found = await client.get(ConfigMap, ("n", "c"))
    assert (found.data, found.metadata.managed_fields) == ({"k": "v"}, None)
    outline = await client.get(metadata_only(ConfigMap), ("n", "c"))
    assert outline.name == "c"


async def test_a_list_names_and_skips_objects_that_are_not_of_the_kind() -> None:
    items = [
        {"metadata": {"namespace": "n", "name": "good"}, "data": {}},
        {"metadata": {"namespace": "n", "name": "bad"}, "data": 5},
    ]
    listed = await LiveClient(FakeTransport(lambda _: FakeResponse(200, {"items": items}))).list(ConfigMap)
    assert [each.name for each in listed] == ["good"]
    (reason,) = listed.skipped
    assert str(reason).startswith("ConfigMap n/bad: ")
    assert "data: Input should be an object" in str(reason)


@pytest.mark.parametrize(("api_version", "kind"), [("v1", "List"), ("v1", "ConfigMapList")])
async def test_a_list_of_objects_is_refused_before_anything_is_sent(api_version: str, kind: str) -> None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}}
    listed = unstructured(GVK.parse(api_version, kind)).from_dict({"items": [item]})
    client = FakeClient()
    for call in (client.apply(listed, field_owner="me"), client.create(listed)):
        with pytest.raises(
            rest.InvalidRequestError, match=f"v1 {kind}: this is a list of objects; write each"
        ):
            await call


async def test_an_object_whose_kind_is_called_a_list_is_applied() -> None:
    kind = unstructured(GVK("example.com", "v1", "AllowList"))
    allowed = kind.from_dict({"metadata": {"name": "a", "namespace": "n"}, "items": []})
    assert (await FakeClient().apply(allowed, field_owner="me")).name == "a"


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    log.configure(log.Options(verbosity=log.DEBUG), stream=stream)
    return stream


def test_a_write_is_one_line_with_its_verb_and_a_read_is_none(lines: io.StringIO) -> None:
    resource = Resource("batch", "v1", "jobs", True)
    log_write(requests.get(resource, "team", "c"), 200)
    sent = requests.patch(resource, "team", "c", b"", content_type=APPLY, subresource="status")
    log_write(sent, 201)
    log_write(requests.update(Resource("", "v1", "nodes", False), "", "n", b"", dry_run=True), 200)

    applied, updated = map(json.loads, lines.getvalue().splitlines())
    assert applied["msg"] == "Wrote"
    assert [applied[key] for key in ("verb", "resource", "object", "subresource", "status")] == [
        "apply",
        "jobs.batch",
        "team/c",
        "status",
        201,
    ]
    assert [updated[key] for key in ("verb", "resource", "object", "dryRun")] == [
        "update",
        "nodes",
        "n",
        True,
    ]


def test_what_tests_use_is_imported_when_asked_for() -> None:
    assert client.interceptor.__name__ == "controller_runtime.client.interceptor"
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        client.Nonsense  # type: ignore[attr-defined]  # noqa: B018 -- the access must fail
