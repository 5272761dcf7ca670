# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from controller_runtime.machinery import GVK
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import (
    AnswerError,
    FakeResponse,
    FakeTransport,
    Request,
    Response,
    published_schema,
)

BIRD = GVK("example.com", "v1", "Bird")
PATH = "/openapi/v3/apis/example.com/v1"
KINDS = "x-kubernetes-group-version-kind"


def server(revision: str = "a", *, tag: str = "", **schemas: Any) -> FakeTransport:
    """Return an API server whose index has a revision, and whose document has an ETag."""

    def answer(request: Request) -> FakeResponse:
        if request.path == "/openapi/v3":
            paths = {"apis/example.com/v1": {"serverRelativeURL": f"{PATH}?hash={revision}"}}
            return FakeResponse(body={"paths": paths}, headers={"Content-Type": "text/plain; charset=utf-8"})
        headers = {"Content-Type": "application/json"} | ({"Etag": f'"{tag}"'} if tag else {})
        return FakeResponse(body={"components": {"schemas": schemas}}, headers=headers)

    return FakeTransport(answer)


def published(kind: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties, KINDS: [{"group": "example.com", "version": "v1", "kind": kind}]}


async def test_the_schema_of_a_kind_is_found_among_those_of_its_group() -> None:
    transport = server(
        list={"properties": {}}, other=published("Fish"), bird=published("Bird", spec={"a": 1})
    )

    found = await published_schema(transport, BIRD)

    assert found is not None
    assert found.properties == {"spec": {"a": 1}}
    assert [request.path for request in transport.requests] == ["/openapi/v3", PATH]


async def test_an_unchanged_document_is_not_read_again() -> None:
    known = await published_schema(server("a", bird=published("Bird")), BIRD)
    same, other = server("a"), server("b", bird=published("Bird"))

    assert await published_schema(same, BIRD, known) is known
    assert len(same.requests) == 1
    assert await published_schema(other, BIRD, known) is not known


async def test_a_document_of_another_revision_than_its_index_names_is_read_again() -> None:
    old = server("new", tag="old", bird=published("Bird"))  # one of several API servers
    known = await published_schema(old, BIRD)
    new = server("new", tag="new", bird=published("Bird", wings={}))
    found = await published_schema(new, BIRD, known)
    assert found is not None
    assert found.properties == {"wings": {}}
    assert await published_schema(new, BIRD, found) is found


@pytest.mark.parametrize("kind", [GVK("example.com", "v2", "Bird"), GVK("example.com", "v1", "Cat")])
async def test_a_kind_that_is_not_published_has_none(kind: GVK) -> None:
    assert await published_schema(server(bird=published("Bird")), kind) is None


async def test_a_server_without_schemas_has_none() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}

    assert await published_schema(FakeTransport(lambda _request: FakeResponse(404, status)), BIRD) is None


async def test_a_kind_has_no_schema_if_the_document_is_gone_since_the_index_was_written() -> None:
    index, status = server(), {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}

    async def answer(request: Request) -> Response:
        return FakeResponse(404, status) if request.path == PATH else await index.send(request)

    assert await published_schema(FakeTransport(answer), BIRD) is None


async def test_a_refusal_is_an_error() -> None:
    status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}

    with pytest.raises(ForbiddenError):
        await published_schema(FakeTransport(lambda _request: FakeResponse(403, status)), BIRD)


async def test_an_invalid_index_is_an_error() -> None:
    with pytest.raises(AnswerError):
        await published_schema(FakeTransport(lambda _request: FakeResponse(body=["nonsense"])), BIRD)
