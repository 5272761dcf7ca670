# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""After any faults, the cache and its handlers converge to the server's state."""

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.cache import EventHandlerFuncs
from controller_runtime.rest import FakeResponse


def refusal(code: int, reason: str) -> Callable[[Any], FakeResponse]:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "no"}
    return lambda _request: FakeResponse(code, body)


def lost(_request: Any) -> Exception:
    return rest.TransportError("connection reset", host="https://api")


FAULTS = [
    lost,
    refusal(410, "Expired"),
    refusal(429, "TooManyRequests"),
    refusal(500, "InternalError"),
    refusal(403, "Forbidden"),
    lambda _request: FakeResponse(lines=()),
]


class Mirror:
    """A handler's view of the objects; every event must be consistent with the previous view."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}

    def add(self, obj: ConfigMap, _initial: bool) -> None:
        assert obj.name not in self.versions
        self.versions[obj.name] = str(obj.metadata.resource_version)

    def update(self, old: ConfigMap, new: ConfigMap) -> None:
        assert self.versions[old.name] == old.metadata.resource_version
        assert int(new.metadata.resource_version or 0) > int(old.metadata.resource_version or 0)
        assert old.metadata.uid == new.metadata.uid
        self.versions[new.name] = str(new.metadata.resource_version)

    def delete(self, obj: ConfigMap, _unknown: bool) -> None:
        del self.versions[obj.name]

    @property
    def handler(self) -> EventHandlerFuncs[ConfigMap]:
        return EventHandlerFuncs(on_add=self.add, on_update=self.update, on_delete=self.delete)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "paging"])
async def test_cache_and_handlers_converge(server: Any, seed: int, streams: bool) -> None:
    dice = random.Random(seed)
    server.streams_lists = streams
    cache = await server.start(page_size=3, random=dice.random)
    await cache.index_field(ConfigMap, "color", lambda obj: [obj.data["color"]])
    informer = await cache.get_informer(ConfigMap)
    mirrors = [Mirror()]
    informer.add_event_handler(mirrors[0].handler)
    writes: list[Any] = []
    answers: list[ConfigMap] = []
    for step in range(150):
        if dice.random() < 0.1:
            writes.append(
                cache.writing(
                    ConfigMap(metadata=ObjectMeta(namespace="team-a", name=dice.choice("abcdefgh")))
                )
            )
            writes[-1].__enter__()
        elif writes and dice.random() < 0.3:
            writes.pop(dice.randrange(len(writes))).__exit__(None, None, None)
        name = dice.choice("abcdefgh")
        # A change that is not sent to the open watches comes with a broken connection, as on a real network.
        silent = dice.random() < 0.2
        if ("team-a", name) in server.objects and dice.random() < 0.4:
            server.remove(name, silent=silent)
        else:
            color = dice.choice(["red", "blue"])
            written = server.put(name, silent=silent, data={"color": color}, uid=f"{name}{step % 7}")
            if dice.random() < 0.5:
                answers.append(ConfigMap.from_dict(written))
        if answers and dice.random() < 0.3:
            cache.remember_write(answers.pop(dice.randrange(len(answers))))
        if silent:
            server.faults.append(refusal(410, "Expired"))
            server.hang_up(lost(None) if dice.random() < 0.5 else None)
        if dice.random() < 0.1:
            server.faults.append(dice.choice(FAULTS))
            server.hang_up()
        if dice.random() < 0.1:
            server.say(b"{garbage")
        if dice.random() < 0.1:
            server.bookmark()
        if dice.random() < 0.05:
            mirrors.append(Mirror())
            informer.add_event_handler(mirrors[-1].handler)
        if dice.random() < 0.3:
            await anyio.sleep(dice.choice([0, 0.5, 5, 60]))
    while writes:
        writes.pop().__exit__(None, None, None)
    # The cache misses a change without an event until the 410 that belongs to it: deliver it now, without other faults.
    server.faults.clear()
    server.faults.append(refusal(410, "Expired"))
    server.hang_up()
    await anyio.sleep(200)
    # Responses to writes that arrive after the watch's events change nothing, even if the object has changed since or
    # is deleted.
    for answer in answers:
        cache.remember_write(answer)
    truth = {name: obj["metadata"]["resourceVersion"] for (_, name), obj in server.objects.items()}
    listed = await cache.list(ConfigMap)
    assert {obj.name: obj.metadata.resource_version for obj in listed} == truth
    for mirror in mirrors:
        assert mirror.versions == truth
    for color in ("red", "blue"):
        found = {obj.name for obj in await cache.list(ConfigMap, fields={"color": color})}
        assert found == {name for (_, name), obj in server.objects.items() if obj["data"]["color"] == color}
