# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Which request may use which connection, and when."""

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from controller_runtime.rest import http1
from controller_runtime.rest.http1 import Dialer
from ctrl_testkit.connections import Line


class Instant(Dialer):
    """Makes connections after ``takes`` seconds, or raises ``error``. The others are closed at once if they ``end``."""

    def __init__(self) -> None:
        super().__init__(http1.Origin.parse("http://server.test"), user_agent="")
        self.made: list[http1.Connection] = []
        self.takes = 0.0
        self.error: Exception | None = None
        self.end = False

    async def _open(self, to: Any, owner: Any, context: Any, server_name: str) -> http1.Connection:
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        connection = http1.Connection(asyncio.get_running_loop(), owner, context)
        connection.connection_made(Line(connection))
        if self.end:
            connection.transport.abort()
            await asyncio.sleep(0)  # lets the event loop report that the connection has ended
        self.made.append(connection)
        return connection


NewPool = Callable[..., http1.Pool]


@pytest.fixture
def dialer() -> Instant:
    return Instant()


@pytest.fixture
def new_pool(dialer: Instant) -> NewPool:
    def new(limit: int = 2) -> http1.Pool:
        return http1.Pool(dialer, http1.Heads("", []), limit=limit)

    return new


async def test_the_connection_used_last_is_used_next(new_pool: NewPool, dialer: Instant) -> None:
    pool = new_pool()
    first, second = await pool.connection(None), await pool.connection(None)
    pool.free(first)
    pool.free(second)
    assert [pool.take_idle(None), pool.take_idle(None), pool.take_idle(None)] == [second, first, None]
    assert dialer.made == [first, second]


async def test_idle_connections_end_a_minute_after_their_last_use(new_pool: NewPool) -> None:
    pool = new_pool()
    early, late = await pool.connection(None), await pool.connection(None)
    pool.free(early)
    await asyncio.sleep(40)
    pool.free(late)
    await asyncio.sleep(19)
    assert early.usable
    await asyncio.sleep(2)
    assert (early.usable, late.usable) == (False, True)
    await asyncio.sleep(40)
    assert not late.usable


async def test_an_idle_connection_that_the_server_ended_is_not_used(new_pool: NewPool) -> None:
    pool = new_pool()
    connection = await pool.connection(None)
    pool.free(connection)
    connection.transport.abort()
    assert await pool.connection(None) is not connection


async def test_a_connection_made_with_another_context_is_not_used(new_pool: NewPool) -> None:
    pool, old, new = new_pool(limit=1), ssl.create_default_context(), ssl.create_default_context()
    connection = await pool.connection(old)
    pool.free(connection)
    assert (await pool.connection(new)).context is new
    assert not connection.usable


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_caller_that_waits_does_not_get_a_connection_that_it_cannot_use(
    new_pool: NewPool, fresh: bool
) -> None:
    pool, old, new = new_pool(limit=1), ssl.create_default_context(), ssl.create_default_context()
    held = await pool.connection(old)
    waiting = asyncio.ensure_future(pool.connection(old if fresh else new, fresh=fresh))
    behind = asyncio.ensure_future(pool.connection(new))
    await asyncio.sleep(0)
    pool.free(held)
    made = await waiting
    assert (made is held, held.usable, behind.done()) == (False, False, False)
    pool.free(made)
    await behind


async def test_callers_beyond_the_limit_wait_in_their_order(new_pool: NewPool, dialer: Instant) -> None:
    pool, order = new_pool(), list[int]()
    held = [await pool.connection(None) for _ in range(2)]

    async def use(number: int) -> None:
        connection = await pool.connection(None)
        order.append(number)
        await asyncio.sleep(1)
        pool.free(connection)

    users = [asyncio.ensure_future(use(number)) for number in range(6)]
    await asyncio.sleep(0)
    for connection in held:
        pool.free(connection)
    await asyncio.gather(*users)
    assert (order, len(dialer.made)) == ([0, 1, 2, 3, 4, 5], 2)


async def test_who_waited_stays_first_if_another_takes_the_room_in_the_same_turn(new_pool: NewPool) -> None:
    pool = new_pool(limit=1)
    held = await pool.connection(None)
    first, second = (asyncio.ensure_future(pool.connection(None)) for _ in range(2))
    await asyncio.sleep(0)
    held.abort()
    taken = await pool.connection(None)
    await asyncio.sleep(1)
    pool.free(taken)
    assert await first is taken
    assert not second.done()
    pool.free(taken)
    await second


async def test_the_room_of_an_ended_connection_is_the_next_ones(new_pool: NewPool, dialer: Instant) -> None:
    pool = new_pool(limit=1)
    held = await pool.connection(None)
    waiting = [asyncio.ensure_future(pool.connection(None)) for _ in range(2)]
    await asyncio.sleep(0)
    held.abort()
    await asyncio.sleep(0)
    pushing = asyncio.ensure_future(pool.connection(None))
    made = await waiting[0]
    await asyncio.sleep(1)
    assert not waiting[1].done()
    pool.free(made)
    assert await waiting[1] is made
    pool.free(made)
    assert await pushing is made


@pytest.mark.parametrize("ends", [False, True])
async def test_a_cancelled_caller_takes_nothing_with_it(new_pool: NewPool, ends: bool) -> None:
    pool = new_pool(limit=1)
    held = await pool.connection(None)
    before, given, after = (asyncio.ensure_future(pool.connection(None)) for _ in range(3))
    await asyncio.sleep(0)
    before.cancel()
    await asyncio.sleep(0)
    if ends:
        held.abort()
    else:
        pool.free(held)
    given.cancel()
    connection = await after
    assert (connection is held) is not ends
    assert (before.cancelled(), given.cancelled()) == (True, True)


@pytest.mark.parametrize("ends", [False, True])
async def test_a_caller_cancelled_in_the_turn_in_which_a_connection_comes_free_leaves_quietly(
    new_pool: NewPool, ends: bool
) -> None:
    pool = new_pool(limit=1)
    held = await pool.connection(None)
    leaving, staying = (asyncio.ensure_future(pool.connection(None)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    if ends:
        held.abort()
    else:
        pool.free(held)
    assert (await staying).usable
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_streams_take_no_room_from_requests(new_pool: NewPool, dialer: Instant) -> None:
    pool = new_pool(limit=2)
    idle = await pool.connection(None)
    pool.free(idle)
    streams = [await pool.connection(None, stream=True) for _ in range(300)]
    assert streams[0] is idle
    requests = [await asyncio.wait_for(pool.connection(None), 1) for _ in range(2)]
    waiting = asyncio.ensure_future(pool.connection(None))
    await asyncio.sleep(60)
    assert not waiting.done()
    pool.free(requests[0])
    assert await waiting is requests[0]
    # Connections of streams are closed at the end, although these streams ended without an error.
    for stream in streams:
        pool.free(stream)
    await asyncio.sleep(0)
    assert not any(stream.usable for stream in streams)
    pool.free(requests[0])
    pool.free(requests[1])
    assert len(dialer.made) == 302
    assert {pool.take_idle(None) for _ in range(2)} == set(requests)


async def test_a_stream_still_being_dialled_takes_no_room_either(new_pool: NewPool, dialer: Instant) -> None:
    pool, dialer.takes = new_pool(limit=1), 5
    stream = asyncio.ensure_future(pool.connection(None, stream=True))
    request = asyncio.ensure_future(pool.connection(None))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    assert (await request).usable
    assert (await stream).usable
    assert asyncio.get_running_loop().time() - began == pytest.approx(4)


async def test_a_connection_that_ends_before_it_is_handed_out_is_an_error_and_takes_no_room(
    new_pool: NewPool, dialer: Instant
) -> None:
    pool, dialer.end = new_pool(limit=1), True
    for _ in range(3):
        with pytest.raises(http1.Error, match="the server closed the connection as soon as it was opened"):
            await asyncio.wait_for(pool.connection(None), 1)
    dialer.end = False
    assert (await asyncio.wait_for(pool.connection(None), 1)).usable


async def test_a_caller_that_waited_too_long_hears_for_what_and_leaves_its_place(
    new_pool: NewPool, dialer: Instant
) -> None:
    pool, now = new_pool(limit=1), asyncio.get_running_loop().time
    began, held = now(), await pool.connection(None)
    with pytest.raises(TimeoutError, match=r"^all 1 connections were in use for 7 s$"):
        await pool.connection(None, within=7)
    assert now() - began == pytest.approx(7)
    pool.free(held)
    assert await pool.connection(None, within=0) is held
    held.abort()
    dialer.takes = 50
    for within, seconds in ((5, 5), (math.inf, 30)):
        began = now()
        with pytest.raises(TimeoutError, match=rf"^no connection within {seconds} s$"):
            await pool.connection(None, within=within)
        assert now() - began == pytest.approx(seconds)
    dialer.takes = 0
    assert (await pool.connection(None)).usable


async def test_a_caller_cancelled_while_it_dials_leaves_its_room(new_pool: NewPool, dialer: Instant) -> None:
    pool, dialer.takes = new_pool(limit=1), 5
    dialing, waiting = (
        asyncio.ensure_future(pool.connection(None)),
        asyncio.ensure_future(pool.connection(None)),
    )
    await asyncio.sleep(1)
    dialing.cancel()
    assert (await waiting).usable
    assert len(dialer.made) == 1


async def test_a_failure_is_told_to_each_who_tried(new_pool: NewPool, dialer: Instant) -> None:
    pool, dialer.error = new_pool(limit=1), http1.Error("connection refused")
    outcomes = await asyncio.gather(*[pool.connection(None) for _ in range(3)], return_exceptions=True)
    assert outcomes == [dialer.error] * 3
    dialer.error = None
    assert (await asyncio.wait_for(pool.connection(None), 1)).usable


async def test_a_fresh_connection_is_made_even_where_others_are_idle(new_pool: NewPool) -> None:
    pool = new_pool()
    idle = [await pool.connection(None) for _ in range(2)]
    for connection in idle:
        pool.free(connection)
    assert await pool.connection(None, fresh=True) not in idle
    assert [connection.usable for connection in idle] == [False, True]


async def test_idle_connections_can_be_closed_and_those_in_use_are_kept(new_pool: NewPool) -> None:
    pool = new_pool()
    used, idle = await pool.connection(None), await pool.connection(None)
    pool.free(idle)
    pool.close_idle()
    assert (used.usable, idle.usable) == (True, False)
    pool.free(used)
    assert await pool.connection(None) is used


async def test_closing_ends_everything_and_tells_everybody(new_pool: NewPool, dialer: Instant) -> None:
    pool = new_pool()
    asking = asyncio.ensure_future((await pool.connection(None)).ask(b""))
    pool.free(await pool.connection(None))
    dialer.takes = 1
    busy = await pool.connection(None)
    waiting = asyncio.ensure_future(pool.connection(None))
    await asyncio.sleep(0)
    await pool.close()
    for told in (asking, waiting):
        with pytest.raises(http1.Error, match="the transport was closed"):
            await told
    assert not any(connection.usable for connection in [*dialer.made, busy])


async def test_a_connection_made_while_the_pool_closes_is_ended(new_pool: NewPool, dialer: Instant) -> None:
    pool, dialer.takes = new_pool(), 1
    dialing = asyncio.ensure_future(pool.connection(None))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(http1.Error, match="the transport was closed"):
        await dialing
    assert not dialer.made[0].usable
