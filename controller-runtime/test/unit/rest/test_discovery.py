# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Discovery of kinds: found kinds are cached, and missing ones only for a while."""

import anyio
import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, Resource, metadata_only, unstructured
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import discovery

WIDGET = GVK("example.org", "v1", "Widget")
GADGET = GVK("example.org", "v1", "Gadget")


class Server:
    """Serves one group with the given kinds."""

    def __init__(self) -> None:
        self.kinds = ["Widget"]
        self.transport = rest.FakeTransport(self.answer)

    async def answer(self, request: rest.Request) -> rest.Response:
        await anyio.sleep(1)
        if request.path != "/apis/example.org/v1" or not self.kinds:
            return rest.FakeResponse(404, {"kind": "Status", "reason": "NotFound"})
        resources = [
            {"name": f"{kind.lower()}s{sub}", "kind": kind, "namespaced": kind == "Widget"}
            for kind in self.kinds
            for sub in ("/status", "")
        ]
        return rest.FakeResponse(200, {"resources": resources})


@pytest.fixture
def server() -> Server:
    return Server()


async def test_a_class_that_knows_its_resource_is_not_asked_about(server: Server) -> None:
    mapper = rest.RESTMapper(server.transport)
    assert (await mapper.resource_for(metadata_only(Pod))).plural == "pods"
    assert server.transport.requests == []


async def test_a_group_is_asked_once_also_by_many_together(server: Server) -> None:
    mapper = rest.RESTMapper(server.transport)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(mapper.resource_for, unstructured(WIDGET))
    assert await mapper.resource_for(WIDGET) == Resource("example.org", "v1", "widgets", True)
    assert len(server.transport.requests) == 1


async def test_a_miss_is_believed_for_a_while_and_then_asked_again(server: Server) -> None:
    mapper = rest.RESTMapper(server.transport)
    server.kinds = []
    for _ in range(3):
        with pytest.raises(
            rest.NoKindMatchError, match=r'no matches for kind "Gadget" in version "example.org/v1"'
        ):
            await mapper.resource_for(GADGET)
    assert len(server.transport.requests) == 1
    server.kinds = ["Gadget"]
    await anyio.sleep(10)
    assert not (await mapper.resource_for(GADGET)).namespaced


async def test_kinds_of_a_group_that_is_no_longer_served_are_forgotten_once_it_is_asked_about(
    server: Server,
) -> None:
    mapper = rest.RESTMapper(server.transport)
    await mapper.resource_for(WIDGET)
    server.kinds = []
    await anyio.sleep(10)
    for kind in (GADGET, WIDGET):  # the request for another kind shows that the group is gone
        with pytest.raises(rest.NoKindMatchError):
            await mapper.resource_for(kind)


async def test_a_refusal_is_no_miss() -> None:
    status = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(403, status))
    mapper = rest.RESTMapper(transport)
    for _ in range(2):
        with pytest.raises(ForbiddenError):
            await mapper.resource_for(WIDGET)
    assert len(transport.requests) == 2


@pytest.mark.parametrize(
    ("group", "version"),
    [
        ("", "v1%2Fsecrets"),
        ("example.org/v1/../..", "v1"),
        ("example.org", ""),
    ],
)
async def test_what_cannot_be_a_group_or_a_version_is_not_asked_about(
    server: Server, group: str, version: str
) -> None:
    mapper = rest.RESTMapper(server.transport)
    with pytest.raises(rest.NoKindMatchError):
        await mapper.resource_for(GVK(group, version, "Secret"))
    assert server.transport.requests == []


class Groups(Server):
    """Lists its groups, and responds to any other with 404."""

    async def answer(self, request: rest.Request) -> rest.Response:
        if request.path == "/apis":
            versions = [{"groupVersion": "example.org/v1", "version": "v1"}]
            return rest.FakeResponse(200, {"groups": [{"name": "example.org", "versions": versions}]})
        return await super().answer(request)


async def test_many_groups_that_are_made_up_cost_a_bounded_number_of_requests_and_entries() -> None:
    server = Groups()
    mapper = rest.RESTMapper(server.transport)
    started = anyio.current_time()

    for number in range(1000):
        with pytest.raises(rest.NoKindMatchError):
            await mapper.resource_for(GVK(f"made-up-{number}.example.org", "v1", "Widget"))

    turns = 1 + (anyio.current_time() - started) // discovery.MISS_TTL
    assert len(server.transport.requests) <= (discovery.MISSES + 1) * turns
    kept = [value for value in vars(mapper).values() if isinstance(value, (dict, type(mapper._asking)))]
    assert len(kept) >= 4
    assert max(map(len, kept)) <= discovery.MISSES


async def test_beyond_the_misses_that_are_remembered_a_group_that_the_server_lists_is_found() -> None:
    server = Groups()
    mapper = rest.RESTMapper(server.transport)
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(_miss, mapper, GVK(f"made-up-{number}.example.org", "v1", "Widget"))

    assert (await mapper.resource_for(WIDGET)).plural == "widgets"


async def _miss(mapper: rest.RESTMapper, kind: GVK) -> None:
    with pytest.raises(rest.NoKindMatchError):
        await mapper.resource_for(kind)


async def test_nothing_is_kept_of_a_question_that_was_cancelled(server: Server) -> None:
    mapper = rest.RESTMapper(server.transport)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(mapper.resource_for, WIDGET)
        await anyio.sleep(0.5)
        tasks.cancel_scope.cancel()

    assert len(mapper._asking) == 0
    assert (await mapper.resource_for(WIDGET)).plural == "widgets"


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"resources": [{"name": 1}]}', b"\xff\xfe"])
async def test_an_answer_that_cannot_be_decoded_is_an_error_of_that_question(body: bytes) -> None:
    answers = [rest.FakeResponse(200, body)]
    good = Server()
    transport = rest.FakeTransport(lambda request: answers.pop() if answers else good.answer(request))
    mapper = rest.RESTMapper(transport)

    with pytest.raises(rest.TransportError):
        await mapper.resource_for(WIDGET)
    assert (await mapper.resource_for(WIDGET)).plural == "widgets"
