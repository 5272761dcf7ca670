# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import anyio
import pytest
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.rest import PublishedSchema, TransportError

from pkg.podgrouper import Rules, rules_of
from pkg.podgrouper.servedrules import MISSING_TTL, PUBLISHING, ServedRules


def schema(*fields: str, **more: Any) -> PublishedSchema:
    properties = {field: {"type": "integer"} for field in fields}
    return PublishedSchema("r", {"spec": {"properties": {**properties, **more}}})


OLD, NEW = schema("minMember"), schema("minMember", "minSubGroup", "preemptionDelay", "stalenessGracePeriod")


class Server:
    """An API server that publishes the schema ``answer``; an ``answer`` that is an error is raised."""

    def __init__(self, answer: PublishedSchema | Exception | None, *, serves: bool = True) -> None:
        self.answer = answer
        self.serves = serves
        self.asked = 0

    async def fetch(self, _known: PublishedSchema | None) -> PublishedSchema | None:
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def is_served(self) -> bool:
        await anyio.lowlevel.checkpoint()
        return self.serves

    async def publish_after(self, seconds: float, answer: PublishedSchema) -> None:
        await anyio.sleep(seconds)
        self.answer = answer

    def rules(self) -> ServedRules:
        return ServedRules(self.fetch, self.is_served)


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (OLD, Rules.V0_13),
        (schema("minSubGroup"), Rules.V0_15),
        (NEW, Rules.V0_17),
        (schema("minSubGroup", "preemptionDelay", minMember={"minimum": 1}), Rules.V0_17),
        (schema("minSubGroup", "preemptionDelay", minMember={"minimum": 0}), Rules.V0_18),
    ],
)
async def test_the_rules_are_those_of_the_served_fields(served: PublishedSchema, expected: Rules) -> None:
    assert await Server(served).rules().current() is expected


@pytest.mark.parametrize("properties", [{}, {"spec": None}, {"spec": {"properties": []}}, [], None])
def test_a_schema_without_the_field_means_the_oldest_rules(properties: Any) -> None:
    assert rules_of(properties) is Rules.V0_13


async def test_many_pods_at_once_read_the_schema_once() -> None:
    server = Server(NEW)
    rules = server.rules()

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(rules.current)

    assert server.asked == 1


async def test_a_replaced_schema_is_noticed_with_the_next_look() -> None:
    server = Server(OLD)
    rules = server.rules()
    await rules.current()

    assert not await rules.refresh()
    server.answer = NEW
    assert await rules.refresh()
    assert await rules.current() is Rules.V0_17


async def test_the_first_look_is_not_a_change() -> None:
    assert not await Server(NEW).rules().refresh()


@pytest.mark.parametrize(
    "answer", [None, TransportError("away"), ForbiddenError("no", code=403, reason="Forbidden")]
)
async def test_a_schema_that_cannot_be_read_any_more_leaves_the_rules(answer: Any) -> None:
    server = Server(NEW)
    rules = server.rules()
    await rules.current()
    server.answer = answer

    assert not await rules.refresh()
    assert await rules.current() is Rules.V0_17


async def test_pods_wait_until_the_schema_of_a_new_pod_group_is_published() -> None:
    server = Server(None)
    rules = server.rules()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.publish_after, PUBLISHING / 2, NEW)
        assert await rules.current() is Rules.V0_17


async def test_a_pod_group_whose_schema_is_never_published_has_the_oldest_rules() -> None:
    server = Server(None)
    rules = server.rules()
    started = anyio.current_time()

    assert await rules.current() is Rules.V0_13
    assert anyio.current_time() - started == pytest.approx(PUBLISHING)
    asked = server.asked
    assert await rules.current() is Rules.V0_13
    assert server.asked == asked
    await anyio.sleep(MISSING_TTL)
    started = anyio.current_time()
    assert await rules.current() is Rules.V0_13
    assert anyio.current_time() == started  # it waits for the schema only the first time
    server.answer = NEW
    await anyio.sleep(MISSING_TTL)
    assert await rules.current() is Rules.V0_17


async def test_a_missing_pod_group_is_looked_for_with_every_pod() -> None:
    server = Server(None, serves=False)
    rules = server.rules()
    started = anyio.current_time()
    assert await rules.current() is Rules.V0_13
    assert anyio.current_time() == started

    server.serves = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.publish_after, 1.0, NEW)
        assert await rules.current() is Rules.V0_17


async def test_a_refused_schema_is_not_waited_for() -> None:
    server = Server(ForbiddenError("no", code=403, reason="Forbidden"))
    rules = server.rules()
    started = anyio.current_time()
    assert await rules.current() is Rules.V0_13
    assert anyio.current_time() == started
    server.answer = NEW
    assert await rules.current() is Rules.V0_13
    await anyio.sleep(MISSING_TTL)

    assert await rules.current() is Rules.V0_17
    assert await rules.refresh(), "pods that were grouped before must be grouped again"
    assert not await rules.refresh()


async def test_nothing_is_assumed_of_a_server_that_was_never_reached() -> None:
    with pytest.raises(TransportError):
        await Server(TransportError("away")).rules().current()
