# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Where kinds are served: asked once, misses for a while only."""

import anyio
import pytest

from pkg.apis.core.v1 import Pod
from pkg.apis.machinery.errors import ForbiddenError
from pkg.apis.machinery.gvk import GVK, Resource
from pkg.apis.machinery.object import metadata_only, unstructured
from pkg.ctrl import rest

WIDGET = GVK("example.org", "v1", "Widget")
GADGET = GVK("example.org", "v1", "Gadget")


class Server:
    """Serves one group, with the kinds it is told to."""

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


async def test_a_refusal_is_no_miss() -> None:
    status = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
    transport = rest.FakeTransport(lambda _: rest.FakeResponse(403, status))
    mapper = rest.RESTMapper(transport)
    for _ in range(2):
        with pytest.raises(ForbiddenError):
            await mapper.resource_for(WIDGET)
    assert len(transport.requests) == 2
