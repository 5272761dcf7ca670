# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes over a real pair of sockets, on the virtual clock: responses, their order, and when a connection ends."""

import asyncio
import logging
import socket

import pytest

from controller_runtime.serving import HEAD_TIMEOUT, KEEP_ALIVE, MAX_HEAD
from ctrl_testkit.connections import CHUNKED, GET, POST, Client, Service, now, settle


async def test_requests_follow_each_other_on_one_connection(service: Service, client: Client) -> None:
    for _ in range(3):
        head, body = await _asked(client, POST)
        assert body == b"POST abc"
        assert b"Connection" not in head
        assert await client.ask(GET) == (200, b"GET -")
    request = service.requests[0]
    assert (request.path, request.query, request.headers["host"]) == ("/echo", {"a": ["1"]}, "x")


async def _asked(client: Client, data: bytes) -> tuple[bytes, bytes]:
    await client.send(data)
    return await client.answer()


@pytest.mark.parametrize(
    "data",
    [
        POST + GET,
        CHUNKED + b"1\r\na\r\n2;x=y\r\nbc\r\n0\r\nX-T: trailer\r\n\r\n" + GET,
        b"\r\n\r\n" + POST + b"\r\n" + GET,
    ],
    ids=["length", "chunked", "empty lines"],
)
async def test_it_does_not_matter_where_the_bytes_are_cut(service: Service, data: bytes) -> None:
    for cut in range(1, len(data)):
        client = await service.connect()
        await client.send(data[:cut])
        await settle()
        await client.send(data[cut:])
        assert [await client.next(), await client.next()] == [(200, b"POST abc"), (200, b"GET -")]
    client = await service.connect()
    for at in range(len(data)):
        await client.send(data[at : at + 1])
        await asyncio.sleep(0)
    assert [await client.next(), await client.next()] == [(200, b"POST abc"), (200, b"GET -")]
    assert "x-t" not in service.requests[-1].headers
    assert "x-t" not in service.requests[-2].headers


async def test_requests_sent_ahead_are_answered_in_order_one_at_a_time(
    service: Service, client: Client
) -> None:
    await client.send(
        b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + POST + b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    await service.began.wait()
    await client.send(GET)
    await settle()
    assert not service.requests
    service.go_on.set()
    assert [await client.next() for _ in range(4)] == [
        (200, b"slow"),
        (200, b"POST abc"),
        (404, b"404 page not found\n"),
        (200, b"GET -"),
    ]


async def test_what_is_sent_ahead_stays_with_the_client(service: Service, client: Client) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await service.began.wait()
    sending = asyncio.create_task(client.send(GET * 200_000))
    await settle()
    assert not sending.done()
    sending.cancel()
    service.go_on.set()


async def test_thousands_of_requests_sent_ahead_are_all_answered(service: Service, client: Client) -> None:
    sending = asyncio.create_task(client.send(GET * 5000))
    for _ in range(5000):
        assert await client.next() == (200, b"GET -")
    await sending


async def test_a_client_that_does_not_read_gets_no_further_answers(service: Service, client: Client) -> None:
    await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + POST)
    await settle()
    assert not service.requests
    assert await client.next() == (200, b"x" * 4_000_000)
    assert await client.next() == (200, b"POST abc")


async def test_a_client_that_never_reads_is_dropped(service: Service, client: Client) -> None:
    await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + POST)
    await asyncio.sleep(KEEP_ALIVE + HEAD_TIMEOUT)
    assert len(await client.ends()) < 4_000_000
    assert not service.requests


@pytest.mark.parametrize(
    ("head", "said", "kept"),
    [
        (b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"Connection: close", False),
        (b"GET /echo HTTP/1.0\r\n\r\n", b"Connection: close", False),
        (b"GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", b"Connection: keep-alive", True),
        (
            b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            b"Connection: close",
            False,
        ),
    ],
)
async def test_the_client_says_whether_the_connection_is_kept(
    client: Client, head: bytes, said: bytes, kept: bool
) -> None:
    answer, body = await _asked(client, head)
    assert said in answer
    assert body == b"GET -"
    if kept:
        assert await client.ask(GET) == (200, b"GET -")
    else:
        assert await client.ends() == b""


async def test_nothing_after_the_last_request_is_answered(client: Client) -> None:
    assert await client.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET + b"odd") == (
        200,
        b"GET -",
    )
    assert await client.ends() == b""


async def test_head_is_answered_without_a_body(client: Client) -> None:
    await client.send(b"HEAD /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await client.ends()).endswith(b"\r\nContent-Length: 6\r\n\r\n")


@pytest.mark.parametrize("body", [b"Content-Length: 3", b"Transfer-Encoding: chunked"])
async def test_a_client_that_asks_first_is_told_to_send_its_body(client: Client, body: bytes) -> None:
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n" + body + b"\r\n\r\n")
    assert (await client.answer())[0] == b"HTTP/1.1 100 Continue"
    rest = b"abc" if body.endswith(b"3") else b"3\r\nabc\r\n0\r\n\r\n"
    assert await client.ask(rest) == (200, b"POST abc")


async def test_it_is_told_so_after_the_answers_before(service: Service, client: Client) -> None:
    expect = b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + expect)
    await service.began.wait()
    service.go_on.set()
    assert await client.next() == (200, b"slow")
    assert await client.next() == (100, b"")
    assert await client.ask(b"abc") == (200, b"POST abc")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 3\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
    ],
)
async def test_others_are_told_nothing(client: Client, head: bytes) -> None:
    await client.send(head)
    await settle()
    assert (await client.ask(b"abc" if head.startswith(b"POST") else b""))[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n",
        CHUNKED + b"3e9\r\n" + b"x" * 1001,
    ],
    ids=["announced", "expecting", "found out"],
)
async def test_a_body_beyond_the_limit_is_told_the_handler_at_once(
    service: Service, client: Client, head: bytes
) -> None:
    answer, body = await _asked(client, head)
    assert b"Connection: close" in answer
    assert body == b"POST -"
    assert service.requests[0].body_rejected
    assert await client.ends() == b""


async def test_what_still_comes_of_it_is_thrown_away_until_its_end(service: Service, client: Client) -> None:
    size = 3_000_000
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    began = now()
    await client.send(b"x" * size)
    assert await client.next() == (200, b"POST -")
    assert await client.ends() == b""
    await settle()
    assert client.connection._transport.is_closing()
    assert now() == began
    assert len(service.requests) == 1


async def test_a_client_that_goes_on_sending_is_cut_off(client: Client) -> None:
    assert (await client.ask(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"))[0] == 200
    began = now()
    with pytest.raises(ConnectionError):
        await client.drip(b"x" * 9999, every=1)
    assert now() - began == pytest.approx(10, abs=1)


@pytest.mark.parametrize(
    "data",
    [
        b"odd\r\n\r\n",
        b"FOO /echo HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /echo HTTP/1.1\nHost: x\n\n",
        b"GET /e cho HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        CHUNKED + b"g\r\n",
        CHUNKED + b"3\r\nabcd\r\n",
        CHUNKED + b"0\r\nX-T: " + b"x" * (MAX_HEAD + 9000),
        CHUNKED + b"1;" + b"x" * (MAX_HEAD + 9000),
    ],
)
async def test_what_makes_no_sense_is_a_bad_request_and_the_end(
    service: Service, client: Client, data: bytes
) -> None:
    await client.send(data)
    head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Connection: close" in head
    assert body == b"400 bad request\n"
    assert await client.ends() == b""
    assert not service.requests


async def test_requests_before_one_that_makes_no_sense_are_answered(service: Service, client: Client) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + POST + b"odd\r\n\r\n")
    await service.began.wait()
    service.go_on.set()
    assert [await client.next() for _ in range(3)] == [
        (200, b"slow"),
        (200, b"POST abc"),
        (400, b"400 bad request\n"),
    ]


@pytest.mark.parametrize(
    "start", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"GET / HTTP/1.1\r\nHost: x\r\n"]
)
async def test_a_head_without_end_is_too_large(client: Client, start: bytes) -> None:
    endless = b"X: y\r\n" * 20_000 if start.endswith(b"\n") else b"x" * 120_000
    sending = asyncio.create_task(client.send(start + endless))
    assert await client.next() == (431, b"431 request header fields too large\n")
    assert await client.ends() == b""
    await sending


async def test_a_head_of_60_kib_is_not(client: Client) -> None:
    assert await client.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 60 * 1024 + b"\r\n\r\n") == (
        200,
        b"GET -",
    )


async def test_a_body_for_another_protocol_is_refused(service: Service, client: Client) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc"
    assert await client.ask(head) == (501, b"501 not implemented\n")
    assert not service.requests


@pytest.mark.parametrize("path", [b"/broken", b"/torn", b"/cancelled"])
async def test_a_handler_that_breaks_is_logged_and_answered(
    client: Client, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert await client.ask(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n") == (
        500,
        b"500 internal server error\n",
    )
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "Error handling request")
    assert record.exc_info
    assert await client.ask(GET) == (200, b"GET -")


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"", KEEP_ALIVE),
        (b"G", HEAD_TIMEOUT),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n", HEAD_TIMEOUT),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na", KEEP_ALIVE),
    ],
)
async def test_a_client_that_falls_silent_is_dropped(client: Client, sent: bytes, seconds: float) -> None:
    await asyncio.sleep(47)
    await client.send(sent)
    await settle()
    began = now() if sent else now() - 47
    assert await client.ends() == b""
    assert now() - began == seconds


async def test_a_head_that_drips_in_has_no_longer(client: Client) -> None:
    began = now()
    with pytest.raises(ConnectionError):
        await client.drip(GET * 10, every=7)
    assert now() - began <= HEAD_TIMEOUT + 2 * 7


async def test_after_an_answer_the_connection_is_kept_for_two_minutes(client: Client) -> None:
    for _ in range(3):
        await client.ask(GET)
        await asyncio.sleep(KEEP_ALIVE - 1)
    began = now() - (KEEP_ALIVE - 1)
    assert await client.ends() == b""
    assert now() - began == KEEP_ALIVE


async def test_a_handler_may_take_as_long_as_it_likes(service: Service, client: Client) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.sleep(1000)
    service.go_on.set()
    assert await client.next() == (200, b"slow")


async def test_a_client_that_leaves_does_not_stop_the_handler(service: Service, client: Client) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + POST)
    await service.began.wait()
    client.sock.shutdown(socket.SHUT_RDWR)
    await asyncio.sleep(5)
    assert client.connection.busy
    service.go_on.set()
    await settle()
    assert service.finished == ["/slow"]
    assert not service.shared._connections


async def test_a_client_that_has_only_said_its_last_word_is_answered(
    service: Service, client: Client
) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + POST)
    client.sock.shutdown(socket.SHUT_WR)
    await service.began.wait()
    await settle()
    service.go_on.set()
    assert [await client.next(), await client.next()] == [(200, b"slow"), (200, b"POST abc")]
    assert await client.ends() == b""


async def test_nothing_is_left_of_connections_that_ended(service: Service) -> None:
    for data in (
        b"",
        b"G",
        POST,
        GET + b"G",
        b"odd",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n",
    ):
        client = await service.connect()
        await client.send(data)
        await settle()
        client.sock.close()
        await settle()
    assert not service.shared._connections


# Closing.


async def test_idle_connections_are_closed_at_once_and_those_in_work_with_their_answer(
    service: Service, client: Client
) -> None:
    idle, used, coming = [await service.connect() for _ in range(3)]
    await used.ask(GET)
    await coming.send(POST[:-1])
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await service.began.wait()
    began = now()
    drain = asyncio.create_task(service.shared.drain(10))
    assert await idle.ends() == await used.ends() == b""
    assert now() == began
    await asyncio.sleep(3)
    await coming.send(POST[-1:])
    service.go_on.set()
    for each, body in ((coming, b"POST abc"), (client, b"slow")):
        head, got = await each.answer()
        assert b"Connection: close" in head
        assert got == body
        assert await each.ends() == b""
    await drain
    assert now() - began == pytest.approx(3)


async def test_what_takes_longer_is_cancelled(service: Service, client: Client) -> None:
    await client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await service.began.wait()
    gone = await service.connect()
    await gone.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await settle()
    gone.sock.close()
    began = now()
    await service.shared.drain(10)
    assert now() - began == pytest.approx(11)
    assert service.finished == ["cancelled"] * 2
    assert await client.ends() == b""
    assert not service.shared._connections


async def test_a_connection_that_comes_too_late_is_closed(service: Service) -> None:
    await service.shared.drain(1)
    late = await service.connect()
    assert await late.ends() == b""
