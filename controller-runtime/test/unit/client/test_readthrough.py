# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An object that is missing from the cache is read from the API server."""

from typing import Any

import anyio
import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Namespace, Secret
from controller_runtime.client import ReadThrough, interceptor, peek
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import errors


def config_map(name: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": name, "namespace": "n"}})


class Server(FakeClient):
    """Counts list requests; may fail, or not respond."""

    asked = 0
    error: Exception | None = None
    delay = 0.0

    async def list(self, kind: Any, **options: Any) -> Any:
        self.asked += 1
        await anyio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        return await super().list(kind, **options)


async def _not_found(*args: Any) -> None:
    raise errors.NotFoundError("not in the cache", code=404, reason="NotFound")


@pytest.fixture
def server() -> Server:
    return Server(config_map("both"), config_map("new"), Namespace.from_dict({"metadata": {"name": "wide"}}))


@pytest.fixture
def reader(server: Server) -> ReadThrough:
    return ReadThrough(FakeClient(config_map("both")), server, (ConfigMap, Namespace))


async def test_what_the_cache_has_is_not_asked_for(reader: ReadThrough, server: Server) -> None:
    assert (await reader.get(ConfigMap, ("n", "both"))).name == "both"
    assert (await peek(reader, ConfigMap, ("n", "both"))).object.name == "both"
    assert [each.name for each in await reader.list(ConfigMap)] == ["both"]
    assert server.asked == 0


async def test_what_the_cache_does_not_know_yet_is_found(reader: ReadThrough) -> None:
    assert (await reader.get(ConfigMap, ("n", "new"))).name == "new"
    assert (await peek(reader, ConfigMap, ("n", "new"))).object.name == "new"
    assert (await reader.get(Namespace, ("", "wide"))).name == "wide"


@pytest.mark.parametrize("key", [("n", "none"), ("elsewhere", "new")])
async def test_what_is_nowhere_is_not_found(reader: ReadThrough, key: tuple[str, str]) -> None:
    with pytest.raises(errors.NotFoundError, match=key[1]):
        await reader.get(ConfigMap, key)
    with pytest.raises(errors.NotFoundError, match=key[1]):
        await peek(reader, ConfigMap, key)


async def test_other_kinds_and_names_that_are_none_are_not_asked_for(
    reader: ReadThrough, server: Server
) -> None:
    with pytest.raises(errors.NotFoundError):
        await reader.get(Secret, ("n", "s"))
    cached = interceptor.wrap(FakeClient(), interceptor.Funcs(get=_not_found))
    with pytest.raises(errors.NotFoundError):
        await ReadThrough(cached, server, (ConfigMap,)).get(ConfigMap, ("n", ""))
    assert server.asked == 0


async def test_a_server_that_refuses_or_does_not_answer_changes_nothing(
    reader: ReadThrough, server: Server
) -> None:
    server.error = errors.ForbiddenError("no", code=403, reason="Forbidden")
    with pytest.raises(errors.NotFoundError):
        await reader.get(ConfigMap, ("n", "new"))
    server.error, server.delay = None, 60.0
    began = anyio.current_time()
    with pytest.raises(errors.NotFoundError):
        await reader.get(ConfigMap, ("n", "new"))
    assert anyio.current_time() - began == pytest.approx(2.0)


async def test_the_server_is_asked_so_often_and_no_more(reader: ReadThrough, server: Server) -> None:
    for _ in range(80):
        with pytest.raises(errors.NotFoundError):
            await reader.get(ConfigMap, ("n", "none"))
    assert server.asked == 50
    await anyio.sleep(1.0)
    for _ in range(80):
        with pytest.raises(errors.NotFoundError):
            await reader.get(ConfigMap, ("n", "none"))
    assert server.asked == 60
