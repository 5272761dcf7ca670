# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""How much of request bodies a server keeps in memory, and which connection it closes when that is too much."""

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import Callable

import anyio
import pytest

from ctrl_testkit.connections import CHUNKED, GET, POST, Client, Service, now, settle

PART = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900


SLOW = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" + b"x" * 900


async def test_a_body_that_is_broken_off_is_freed_without_a_collector(
    service: Service, client: Client
) -> None:
    reader = weakref.ref(client.connection._reader)
    await client.send(PART)
    await settle()
    assert service.shared.kept_total == 900
    gc.disable()
    try:
        service.clients.remove(client)
        client.sock.close()
        await settle()
        del client.connection
        await settle()
        assert service.shared.kept_total == 0
        assert reader() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("ends", ["answered", "refused", "left"])
async def test_what_is_kept_of_a_body_is_let_go_however_it_ends(
    service: Service, client: Client, ends: str
) -> None:
    if ends == "answered":
        await client.ask(PART + b"x" * 100)
    elif ends == "refused":
        await client.ask(CHUNKED + b"400\r\n" + b"x" * 1024 + b"\r\n")
    else:
        await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + POST * 3)
        await settle()
        client.sock.shutdown(socket.SHUT_RDWR)
        await settle()
        service.go_on.set()
    await settle()
    assert service.shared.kept_total == 0


@pytest.mark.parametrize("order", [1, -1], ids=["first connected", "last connected"])
async def test_of_bodies_that_rest_the_oldest_give_way_to_others(service: Service, order: int) -> None:
    resting = [await service.connect() for _ in range(3)][::order]
    for each in resting:
        await each.send(PART)
        await settle()
        await asyncio.sleep(0.01)
    assert service.shared.crowded
    another = await service.connect()
    began = now()
    assert (await another.ask(PART + b"y" * 100))[0] == 200
    assert now() - began <= 3
    for each in resting[:2]:
        assert await each.ends() == b""
    assert (await resting[2].ask(b"x" * 100))[0] == 200


async def test_bodies_that_rest_give_way_also_shortly_after_others_had_to_wait(service: Service) -> None:
    first, second = [[await service.connect() for _ in range(3)] for _ in range(2)]
    for each in first:
        await each.send(PART)
        await settle()
    await asyncio.sleep(0.4)
    for each in first:
        assert (await each.ask(b"x" * 100))[0] == 200
    for each in second:
        await each.send(PART)
        await asyncio.sleep(0.01)
    assert service.shared.crowded
    with anyio.fail_after(3):
        assert (await second[2].ask(b"x" * 100))[0] == 200


async def test_a_body_waits_while_those_in_work_leave_no_room(service: Service) -> None:
    busy = [await service.connect() for _ in range(3)]
    for each in busy:
        await each.send(SLOW)
    await settle()
    another = await service.connect()
    await another.send(PART)
    await settle()
    await another.send(b"y" * 100)
    await asyncio.sleep(100)
    assert not service.requests
    service.go_on.set()
    began = now()
    assert (await another.next())[0] == 200
    assert now() == pytest.approx(began, abs=0.01)
    for each in busy:
        assert await each.next() == (200, b"slow")
    assert service.shared.kept_total == 0


async def test_bodies_that_drip_in_do_not_keep_others_out(service: Service) -> None:
    dripping = [await service.connect() for _ in range(3)]
    for each in dripping:
        await each.send(PART)
    await settle()

    async def drip(client: Client) -> None:
        with contextlib.suppress(ConnectionError):
            await client.drip(b"x" * 90, every=0.5)

    async with anyio.create_task_group() as tasks:
        for each in dripping:
            tasks.start_soon(drip, each)
        await asyncio.sleep(2)
        another = await service.connect()
        began = now()
        assert (await another.ask(PART + b"y" * 100))[0] == 200
        assert now() - began <= 3
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("by", ["connection", "handshake"])
async def test_a_place_is_made_when_its_owner_has_waited_a_second(service: Service, by: str) -> None:
    shared = service.shared
    shared._max_connections = 1

    async def shake_hands() -> None:
        with shared.begin_handshake() as scope:
            await anyio.sleep_forever()
        shared.end_handshake(scope)

    async with anyio.create_task_group() as tasks:
        if by == "connection":
            await service.connect()
        else:
            tasks.start_soon(shake_hands)
            await settle()
        began = now()
        with anyio.fail_after(5):
            await shared.wait_for_room()
        assert now() == pytest.approx(began + 1, abs=0.01)


async def test_a_place_is_made_by_the_connection_that_waited_longest_and_never_by_one_in_work(
    service: Service,
) -> None:
    shared = service.shared
    shared._max_connections = 3
    working, first, second = [await service.connect() for _ in range(3)]
    await working.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(1)
    await second.ask(GET)
    await asyncio.sleep(1)
    await first.ask(GET)
    await shared.wait_for_room()
    assert await second.ends() == b""
    assert await first.ask(GET) == (200, b"GET -")
    await service.connect()
    await first.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    third = service.clients[-1]
    await third.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await settle()
    with anyio.move_on_after(60) as waiting:
        await shared.wait_for_room()
    assert waiting.cancelled_caught
    service.go_on.set()
    assert await working.next() == (200, b"slow")
    with anyio.fail_after(5):
        await shared.wait_for_room()


class Commas:
    """Refuses bodies of more than ten commas."""

    size = 0

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def begin(self) -> Callable[[bytes], str | None]:
        def look(piece: bytes) -> str | None:
            self.seen.append(piece)
            return "too many commas" if b"".join(self.seen).count(b",") > 10 else None

        self.seen.clear()
        return look


@pytest.fixture
def commas(service: Service) -> Commas:
    service.shared.inspection = inspection = Commas()
    service.shared.max_body = service.shared._max_kept = 100_000
    return inspection


def announce(size: int) -> bytes:
    return f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


async def test_a_body_is_refused_before_its_end_and_its_rest_is_not_kept(
    service: Service, commas: Commas
) -> None:
    client = await service.connect()
    await client.send(announce(90_000) + b"," * 20_000)
    assert await client.next() == (200, b"POST -")
    (request,) = service.requests
    assert (request.body_rejected, request.refusal, request.body) == (True, "too many commas", b"")
    assert len(b"".join(commas.seen)) <= 20_000
    await client.send(b"," * 70_000)
    assert await client.ends() == b""
    assert service.shared.kept_total == 0


async def test_a_small_body_is_left_to_its_handler(service: Service, commas: Commas) -> None:
    commas.size = 50_000
    client = await service.connect()
    assert (await client.ask(announce(40_000) + b"," * 40_000))[0] == 200
    assert commas.seen == []


async def test_a_body_is_looked_at_from_its_beginning_and_each_part_once(
    service: Service, commas: Commas
) -> None:
    commas.size = 50_000
    client = await service.connect()
    body = bytes(range(45, 145)) * 900
    await client.send(announce(len(body)))
    for at in range(0, len(body), 4000):
        await client.send(body[at : at + 4000])
        await settle()
    assert await client.next() == (200, b"POST " + body)
    seen = b"".join(commas.seen)
    assert body.startswith(seen)
    assert len(seen) > 75_000
    commas.seen.clear()
    assert await client.ask(POST) == (200, b"POST abc")
    assert commas.seen == []


async def test_a_body_in_many_small_chunks_is_kept_in_large_parts(service: Service, commas: Commas) -> None:
    client = await service.connect()
    await client.send(CHUNKED)
    for _ in range(40):
        await client.send(b"1\r\nx\r\n" * 1000)
        await settle()
    (connection,) = service.shared._connections
    assert connection.kept == 40_000
    assert len(commas.seen) <= 5
    await client.send(b"0\r\n\r\n")
    assert await client.next() == (200, b"POST " + b"x" * 40_000)
