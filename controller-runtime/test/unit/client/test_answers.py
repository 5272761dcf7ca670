# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""If another server responds instead of an API server, each call raises its own error."""

import json
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.client.live import ResponseObject
from controller_runtime.machinery import GVK, metadata_only, unstructured
from controller_runtime.machinery.errors import ForbiddenError, StatusError
from controller_runtime.rest import FakeResponse, FakeTransport

OBJ = ConfigMap.from_dict({"metadata": {"namespace": "n", "name": "c"}})
FOREIGN = unstructured(GVK("example.com", "v1", "Widget"))

HTML = b"<html><body>Sign in, please</body></html>"
CALLS: dict[str, Callable[[LiveClient], Awaitable[object]]] = {
    "get": lambda c: c.get(ConfigMap, ("n", "c")),
    "get metadata": lambda c: c.get(metadata_only(ConfigMap), ("n", "c")),
    "discovery": lambda c: c.get(FOREIGN, ("n", "c")),
    "list": lambda c: c.list(ConfigMap),
    "create": lambda c: c.create(OBJ),
    "update": lambda c: c.update(OBJ),
    "patch": lambda c: c.patch(OBJ, merge_from(OBJ)),
    "apply": lambda c: c.apply(OBJ, field_owner="me"),
    "delete": lambda c: c.delete(OBJ),
    "delete all": lambda c: c.delete_all_of(ConfigMap, namespace="n"),
    "status update": lambda c: c.status.update(OBJ),
    "status patch": lambda c: c.status.patch(OBJ, merge_from(OBJ)),
    "subresource get": lambda c: c.subresource("scale").get(OBJ, ConfigMap),
    "subresource create": lambda c: c.subresource("eviction").create(OBJ, OBJ),
}
call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def client(status: int, body: bytes, **headers: str) -> LiveClient:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return LiveClient(FakeTransport(lambda _: FakeResponse(status, body, headers=named)))


@call
@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        pytest.param(200, HTML, {"Content_Type": "text/html"}, "of type 'text/html', not JSON", id="a page"),
        pytest.param(301, b"", {"Location": "https://sso/"}, "redirects to 'https://sso/'", id="a redirect"),
        pytest.param(304, b"", {}, "status 304 and is not from the Kubernetes API$", id="not modified"),
        pytest.param(101, b"", {}, "status 101 and is not", id="another protocol"),
        pytest.param(0, b"", {}, "status 0 and is not", id="no status"),
    ],
)
async def test_what_an_api_server_never_answers_is_an_error_of_the_transport(
    call: Callable[[LiveClient], Awaitable[object]],
    status: int,
    body: bytes,
    headers: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(rest.AnswerError, match=message):
        await call(client(status, body, **headers))


@call
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HTML, id="a page that calls itself JSON"),
        pytest.param(b'{"kind":', id="half"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"metadata":7,"items":7,"resources":7}', id="other types"),
        pytest.param(b'{"metadata":{"name":"another"},"items":"","resources":[{}]}', id="another object"),
        pytest.param(b'{"error":"sign in, please"}', id="JSON of another server"),
    ],
)
async def test_a_body_that_cannot_be_decoded_is_an_error_of_the_transport(
    request: pytest.FixtureRequest, call: Callable[[LiveClient], Awaitable[object]], body: bytes
) -> None:
    made = call(client(200, body, Content_Type="application/json"))
    case = request.node.callspec.id
    unseen = (
        "another object-delete",
        "another object-delete all",
        "another object-subresource create",
        "other types-delete all",
        "JSON of another server-subresource create",
        "JSON of another server-delete all",
    )
    if case in unseen:
        # An object that does not exist any more is not checked; the result of a subresource may have no name.
        await made
    else:
        with pytest.raises(rest.AnswerError):
            await made


@pytest.mark.parametrize("call", [CALLS["get"], CALLS["update"], CALLS["patch"]])
async def test_a_failure_under_a_code_of_success_is_a_refusal(
    call: Callable[[LiveClient], Awaitable[object]],
) -> None:
    status = b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}'
    with pytest.raises(ForbiddenError, match="no"):
        await call(client(200, status))
    with pytest.raises(rest.AnswerError, match="the response is a Status, not a ConfigMap"):
        await call(client(200, b'{"kind":"Status","status":"Success"}'))


async def test_a_lazy_answer_is_checked_when_it_is_looked_at() -> None:
    stored = await client(200, HTML).apply_lazily(OBJ, field_owner="me")
    with pytest.raises(rest.AnswerError):
        stored.metadata  # noqa: B018
    other = await client(200, b'{"metadata":{"name":"another"}}').patch_lazily(OBJ, merge_from(OBJ))
    with pytest.raises(rest.AnswerError, match="'another', not 'c'"):
        other.metadata  # noqa: B018


async def test_an_eviction_is_answered_by_a_status() -> None:
    pod = Pod.from_dict({"metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": []}})
    body = unstructured(GVK("policy", "v1", "Eviction")).from_dict(
        {"metadata": {"namespace": "n", "name": "p"}}
    )
    answered = client(201, b'{"kind":"Status","status":"Success"}')
    assert await answered.subresource("eviction").create(pod, body) is body


@pytest.mark.parametrize(("code", "body"), [(204, b""), (200, b'{"kind":"ConfigMap"}')])
async def test_a_deletion_may_be_answered_by_nothing_or_an_empty_object(code: int, body: bytes) -> None:
    assert await client(code, body).remove(OBJ) is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"", "cannot be decoded"), (b'{"error":"sign in"}', "neither a Status nor an object")],
)
async def test_a_foreign_answer_to_a_deletion_is_no_sign_that_the_object_is_deleted(
    body: bytes, problem: str
) -> None:
    with pytest.raises(rest.AnswerError, match=problem):
        await client(200, body).remove(OBJ)


def terminating(name: str, data: bytes) -> bytes:
    """Return a ConfigMap that a finalizer keeps."""
    metadata = {"name": name, "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    marked = json.dumps({**metadata, "finalizers": ["a/x"]}).encode()
    return b'{"kind":"ConfigMap","metadata":' + marked + b',"data":' + data + b"}"


async def test_the_object_that_a_deletion_leaves_is_checked_as_other_objects_are() -> None:
    left = await client(200, terminating("c", b"{}")).remove(OBJ)
    assert left is not None
    assert left.object.metadata.finalizers == ["a/x"]
    with pytest.raises(rest.AnswerError, match="the response is the object 'another', not 'c'"):
        await client(200, terminating("another", b"{}")).delete(OBJ)
    large = await client(200, terminating("c", b"[" + b"{}," * 50_000 + b"{}]")).remove(OBJ)
    assert large is not None
    with pytest.raises(rest.AnswerError, match="more than 40000 objects and lists"):
        large.object  # noqa: B018


async def test_a_failure_under_a_code_of_success_is_no_deletion() -> None:
    status = b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}'
    with pytest.raises(ForbiddenError, match="no"):
        await client(200, status).delete(OBJ)


def test_an_error_shows_a_page_and_no_object() -> None:
    with pytest.raises(rest.AnswerError, match="its 41 bytes begin with b'<html>"):
        ResponseObject(ConfigMap, HTML).object  # noqa: B018
    with pytest.raises(rest.AnswerError) as caught:
        ResponseObject(ConfigMap, b'{"data":{"password":["s3cret"]}}').object  # noqa: B018
    assert "data.password: Input should be a valid string" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("details", ['"x"', "[]", '{"causes":"x"}', '{"causes":[1,null,{"reason":"A"}]}'])
async def test_the_details_of_a_refusal_may_have_any_shape(details: str) -> None:
    body = f'{{"kind":"Status","code":true,"message":7,"details":{details}}}'.encode()
    with pytest.raises(StatusError) as caught:
        await client(403, body).get(ConfigMap, ("n", "c"))
    assert isinstance(caught.value, ForbiddenError)
    assert all(isinstance(each, dict) for each in caught.value.causes)


async def test_other_tasks_have_turns_while_a_long_list_is_decoded() -> None:
    items = b",".join(b'{"metadata":{"name":"a%d"}}' % number for number in range(400))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        listed = await client(200, b'{"items":[' + items + b"]}").list(ConfigMap)
        tasks.cancel_scope.cancel()
    assert len(listed) == 400
    assert turns >= 25


@pytest.mark.parametrize("depth", [300, 900, 5000])
async def test_a_list_leaves_out_an_object_that_is_nested_too_deeply(depth: int) -> None:
    deep = b'{"metadata":{"name":"a"},"x":' + b"[" * depth + b"]" * depth + b"}"
    body = b'{"items":[' + deep + b',{"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"7"}}'
    listed = await client(200, body).list(ConfigMap)
    assert ([obj.name for obj in listed], listed.resource_version) == (["b"], "7")
    assert [type(each) for each in listed.skipped] == [rest.AnswerError]
