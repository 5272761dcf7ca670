# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One connection: responses that are split at any byte, and every way in which it can fail."""

import asyncio
import gzip
import zlib

import pytest

from controller_runtime.rest import http1
from controller_runtime.rest.http1 import Connection
from ctrl_testkit.connections import RecordedConnection

HEAD = b"GET /x HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECRET = b"a secret " * 50

WHOLE = [
    pytest.param(OK, 200, b"ok", "free", id="a length"),
    pytest.param(STREAM + b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n", 200, b"abcde", "free", id="chunks"),
    pytest.param(STREAM + b"1\r\na\r\n0\r\nLate: 1\r\n\r\n", 200, b"a", "free", id="a trailer"),
    pytest.param(b"HTTP/1.1 204 No\r\n\r\n", 204, b"", "free", id="no content"),
    pytest.param(b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", 304, b"", "free", id="not modified"),
    pytest.param(b"HTTP/1.1 500\r\nContent-Length: 1\r\n\r\n!", 500, b"!", "free", id="no reason"),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + OK,
        200,
        b"ok",
        "free",
        id="interim",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", "lost", id="close"
    ),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", "lost", id="HTTP/1.0"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [gzip.compress(SECRET, mtime=0)])
        + b"0\r\n\r\n",
        200,
        SECRET,
        "free",
        id="gzip",
    ),
    pytest.param(
        OK.replace(b"\r\n", b"\r\nContent-Encoding: identity\r\n", 1), 200, b"ok", "free", id="identity"
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%s"
        % (len(zlib.compress(SECRET)), zlib.compress(SECRET)),
        200,
        SECRET,
        "free",
        id="deflate",
    ),
]


def arrive(connection: Connection, data: bytes) -> None:
    """Pass ``data`` to the connection as a transport does: in pieces of the size of the connection's buffer."""
    while data:
        room = connection.get_buffer(-1)
        taken, data = data[: len(room)], data[len(room) :]
        room[: len(taken)] = taken
        connection.buffer_updated(len(taken))


@pytest.mark.parametrize(("answer", "status", "body", "then"), WHOLE)
async def test_an_answer_is_the_same_however_it_is_cut(
    answer: bytes, status: int, body: bytes, then: str
) -> None:
    cuts = [[answer[:at], answer[at:]] for at in range(len(answer))]
    for pieces in [*cuts, [answer[at : at + 1] for at in range(len(answer))]]:
        recorded = RecordedConnection()
        asking = await recorded.ask(HEAD)
        for piece in filter(None, pieces):
            assert not asking.done()
            arrive(recorded.connection, piece)
        got = await asking
        assert (got.status, got.take_body(), recorded.told) == (status, body, [then])
        assert "a" not in got.headers


async def test_a_body_without_a_length_lasts_until_the_connection_ends() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    arrive(recorded.connection, b"HTTP/1.1 200 OK\r\n\r\nall of")
    arrive(recorded.connection, b" it")
    recorded.line.end()
    assert ((await asking).take_body(), recorded.told) == (b"all of it", ["lost"])


@pytest.mark.parametrize(
    ("arrived", "lost_by", "kind", "text"),
    [
        (b"", None, http1.GoneError, "the server closed the connection without a response"),
        (b"", ConnectionResetError(104, "Connection reset by peer"), http1.GoneError, "reset by peer"),
        (b"HTTP/1.1 2", None, http1.Error, "the response was cut off"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None, http1.Error, "the response was cut off"),
        (OK[:-1], None, http1.Error, "the response was cut off"),
        (STREAM + b"5\r\nab", None, http1.Error, "the response was cut off"),
        (
            STREAM + b"2\r\nab\r\n",
            ConnectionResetError(104, "Connection reset"),
            http1.Error,
            "off: .* reset",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhalf", ConnectionResetError(104, "reset"), http1.Error, "was cut off"),
    ],
)
async def test_an_answer_that_breaks_off_says_how(
    arrived: bytes, lost_by: Exception | None, kind: type[Exception], text: str
) -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    if arrived:
        arrive(recorded.connection, arrived)
    recorded.line.end(lost_by)
    with pytest.raises(kind, match=text) as raised:
        await asking
    assert raised.type is kind
    assert not recorded.connection.usable


@pytest.mark.parametrize(
    ("arrived", "text"),
    [
        (b"<html>", "malformed response: "),
        (b"\x15\x03\x01\x00\x02", "malformed response: "),
        (b"HTTP/1.1 20", "was cut off"),
        (b"HTTP/1.1 abc\r\n\r\n", "malformed response: "),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            "malformed response: .*Length",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok", "malformed response: .*Length"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed response: "),
        (b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", "malformed response: "),
        (STREAM + b"xyz\r\n", "malformed response: .*chunk"),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            "malformed response: it switches to another protocol",
        ),
        (
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200_000,
            "malformed response: its head is longer than 1048576 bytes",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok", "encoded as 'br'"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\noops",
            "cannot be decoded: ",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n"
            + gzip.compress(SECRET, mtime=0)[:20],
            "its compressed body is incomplete",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 42\r\n\r\n"
            + gzip.compress(b"a", mtime=0) * 2,
            "other data follows its compressed body",
        ),
        (
            b"HTTP/1.1 200 OK\r\n" + b"Warning: a\r\n" * 50_000,
            "malformed response: its header b'warning' is longer than 65536 bytes",
        ),
    ],
)
async def test_what_is_no_answer_ends_the_connection_and_says_why(arrived: bytes, text: str) -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    for at in range(0, len(arrived), 100_000):
        arrive(recorded.connection, arrived[at : at + 100_000])
    recorded.line.end()
    with pytest.raises(http1.Error, match=text):
        await asking
    assert not recorded.connection.usable


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\n", OK, b"\x00", b"garbage", b"{}\n"])
@pytest.mark.parametrize("later", [False, True])
async def test_bytes_that_nobody_asked_for_end_the_connection(extra: bytes, later: bool) -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    arrive(recorded.connection, OK if later else OK + extra)
    assert (await asking).take_body() == b"ok"
    if later:
        arrive(recorded.connection, extra)
    assert recorded.told == ["free", "lost"] if later else ["lost"]
    assert recorded.line.ended


async def test_requests_follow_each_other_on_one_connection() -> None:
    recorded = RecordedConnection()
    for body in (None, b"", b"x" * 10):
        asking = await recorded.ask(HEAD, body)
        arrive(recorded.connection, OK)
        await asking
    assert (recorded.line.sent, recorded.told) == (3 * HEAD + b"x" * 10, ["free"] * 3)


async def test_an_answer_to_head_has_no_body_whatever_it_says() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD, bodiless=True)
    arrive(recorded.connection, OK[:-2])
    answer = await asking
    assert (answer.status, answer.take_body(), answer.headers["content-length"], recorded.told) == (
        200,
        b"",
        "2",
        [],
    )


async def test_a_large_body_goes_out_piece_by_piece_and_waits_for_room() -> None:
    recorded, body = RecordedConnection(), b"x" * 500_000
    recorded.connection.pause_writing()
    asking = asyncio.ensure_future(recorded.connection.ask(HEAD, body))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(recorded.line.sent) < 100_000
    recorded.connection.resume_writing()
    await asyncio.sleep(1)
    assert recorded.line.sent == HEAD + body
    arrive(recorded.connection, OK)
    assert ((await asking).status, recorded.told) == (200, ["free"])


async def test_an_answer_before_the_body_is_sent_is_taken_and_ends_the_connection() -> None:
    recorded, body = RecordedConnection(), b"x" * 500_000
    asking = await recorded.ask(HEAD, body)
    recorded.connection.pause_writing()
    arrive(recorded.connection, OK.replace(b"200 OK", b"413 Too Large"))
    assert (await asking).status == 413
    assert (len(recorded.line.sent) < len(body), recorded.told) == (True, ["lost"])


async def test_a_connection_lost_under_a_large_body_is_noticed() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD, b"x" * 500_000)
    recorded.connection.pause_writing()
    recorded.line.end(ConnectionResetError(104, "Connection reset by peer"))
    with pytest.raises(http1.GoneError, match="reset by peer"):
        await asking


async def test_a_stream_holds_its_server_when_nobody_reads() -> None:
    recorded, piece = RecordedConnection(), b"x" * 50_000
    asking = await recorded.ask(HEAD, bounds=None)
    arrive(recorded.connection, STREAM)
    answer = await asking
    sent = 0
    while not recorded.is_paused():
        arrive(recorded.connection, b"%x\r\n%s\r\n" % (len(piece), piece))
        sent += 1
    assert sent * len(piece) < 1 << 19
    pieces = answer.pieces()
    read = [await anext(pieces)]
    assert recorded.is_paused()
    while answer.unread:
        read.append(await anext(pieces))
    assert not recorded.is_paused()
    arrive(recorded.connection, b"0\r\n\r\n")
    assert [piece async for piece in pieces] == []
    assert (b"".join(read), recorded.told) == (piece * sent, ["free"])


async def test_a_stream_that_ends_while_it_is_held_frees_its_connection() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD, bounds=None)
    arrive(recorded.connection, STREAM)
    answer = await asking
    arrive(recorded.connection, b"80000\r\n" + b"x" * 0x80000)
    assert recorded.is_paused()
    arrive(recorded.connection, b"\r\n0\r\n\r\n")
    assert (recorded.is_paused(), recorded.told) == (False, ["free"])
    assert sum([len(piece) async for piece in answer.pieces()]) == 0x80000


async def test_a_refused_stream_is_read_whole() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD, bounds=None)
    arrive(recorded.connection, b"HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\ngo")
    await asyncio.sleep(0)
    assert not asking.done()
    arrive(recorded.connection, b"ne")
    answer = await asking
    assert (answer.is_buffered, answer.take_body()) == (True, b"gone")


async def test_an_answer_is_given_up_so_long_after_its_last_byte() -> None:
    recorded, loop = RecordedConnection(), asyncio.get_running_loop()
    asking = asyncio.ensure_future(recorded.connection.ask(HEAD, timeout=30, deadline=loop.time() + 30))
    began = loop.time()
    await asyncio.sleep(20)
    arrive(recorded.connection, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    for _ in range(3):
        await asyncio.sleep(9)
        arrive(recorded.connection, b"x")
    with pytest.raises(TimeoutError):
        await asking
    assert loop.time() - began == pytest.approx(20 + 27 + 30)
    assert recorded.told == ["lost"]


async def test_a_complete_head_gives_as_much_time_as_a_part_of_the_body() -> None:
    recorded, loop = RecordedConnection(), asyncio.get_running_loop()
    asking = asyncio.ensure_future(recorded.connection.ask(HEAD, timeout=30, deadline=loop.time() + 30))
    await asyncio.sleep(20)
    arrive(recorded.connection, OK[:-2])
    await asyncio.sleep(29)
    arrive(recorded.connection, b"ok")
    assert (await asking).take_body() == b"ok"


async def test_the_head_of_a_stream_that_comes_with_the_deadline_is_in_time() -> None:
    recorded, loop = RecordedConnection(), asyncio.get_running_loop()
    deadline = loop.time() + 30
    # The event loop handles both in one turn, and resumes the reader in the next.
    loop.call_at(deadline, arrive, recorded.connection, STREAM)
    asking = recorded.connection.ask(HEAD, bounds=None, timeout=30, deadline=deadline)
    assert (await asking).status == 200
    assert not recorded.line.ended


async def test_bytes_of_a_head_give_no_more_time_and_a_stream_has_all_of_it() -> None:
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    slow, stream = RecordedConnection(), RecordedConnection()
    dripping = asyncio.ensure_future(slow.connection.ask(HEAD, timeout=30, deadline=began + 30))
    watching = asyncio.ensure_future(
        stream.connection.ask(HEAD, bounds=None, timeout=30, deadline=began + 30)
    )
    await asyncio.sleep(20)
    arrive(slow.connection, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 ")
    arrive(stream.connection, STREAM)
    with pytest.raises(TimeoutError):
        await dripping
    assert loop.time() - began == pytest.approx(30)
    await asyncio.sleep(1000)
    assert ((await watching).status, stream.told) == (200, [])


async def test_the_time_of_one_request_is_not_that_of_the_next() -> None:
    recorded, loop = RecordedConnection(), asyncio.get_running_loop()
    for patience in (10, 5, 30):
        asking = asyncio.ensure_future(
            recorded.connection.ask(HEAD, timeout=patience, deadline=loop.time() + patience)
        )
        await asyncio.sleep(patience - 1)
        arrive(recorded.connection, OK)
        await asking
    began = loop.time()
    with pytest.raises(TimeoutError):
        await recorded.connection.ask(HEAD, timeout=2, deadline=began + 2)
    assert loop.time() - began == pytest.approx(2)


async def test_who_is_cancelled_in_mid_answer_ends_the_connection() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    arrive(recorded.connection, OK[:-1])
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (recorded.line.ended, recorded.told) == (True, ["lost"])


async def test_who_is_cancelled_after_the_answer_leaves_the_connection_to_the_next() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD)
    arrive(recorded.connection, OK)
    asking.cancel()
    following = asyncio.ensure_future(recorded.connection.ask(HEAD))
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    arrive(recorded.connection, OK)
    assert ((await following).status, recorded.told) == (200, ["free", "free"])


async def test_an_ended_connection_says_so_and_takes_no_request() -> None:
    recorded = RecordedConnection()
    asking = await recorded.ask(HEAD, timeout=30, deadline=2000)
    arrive(recorded.connection, OK)
    await asking
    closed = recorded.connection.closed()
    recorded.connection.abort()
    await closed
    assert recorded.connection.closed().done()
    with pytest.raises(http1.GoneError):
        await recorded.connection.ask(HEAD)


@pytest.mark.parametrize("deadline", [30, 200])
async def test_an_answer_that_never_ends_is_given_up(deadline: float) -> None:
    recorded, loop = RecordedConnection(), asyncio.get_running_loop()
    began = loop.time()
    bounds = http1.Bounds(1 << 20, 100)
    asking = asyncio.ensure_future(
        recorded.connection.ask(HEAD, bounds=bounds, timeout=deadline, deadline=began + deadline)
    )
    await asyncio.sleep(1)
    arrive(recorded.connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def drip() -> None:
        while True:
            await asyncio.sleep(1)
            arrive(recorded.connection, b"1\r\nx\r\n")

    dripping = asyncio.ensure_future(drip())
    with pytest.raises(http1.Error, match="the response did not end within 100 s"):
        await asking
    dripping.cancel()
    assert loop.time() - began == pytest.approx(max(deadline, 100))
    assert recorded.told == ["lost"]


@pytest.mark.parametrize(("status", "most"), [(200, 5000), (500, 1000)])
async def test_an_answer_that_is_not_needed_is_read_without_being_kept(status: int, most: int) -> None:
    async def ask(size: int) -> tuple[http1.Incoming, int]:
        recorded = RecordedConnection()
        asking = await recorded.ask(HEAD, bounds=http1.Bounds(1000, 9, unread=5000))
        arrive(recorded.connection, b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, size))
        for _ in range(size // 100):
            arrive(recorded.connection, b"x" * 100)
        answer = await asking
        return answer, len(answer.take_body())

    answer, size = await ask(1000)
    assert (answer.status, size) == (status, 1000)
    with pytest.raises(http1.Error, match=f"the response is larger than {most} bytes"):
        await ask(most + 100)
    if most > 1000:
        answer, size = await ask(most)
        assert (answer.status, size) == (status, 0)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_too_large_is_given_up(status: int, stream: bool) -> None:
    recorded = RecordedConnection()
    size = http1.ORDINARY.size if stream else 1000
    asking = asyncio.ensure_future(
        recorded.connection.ask(HEAD, bounds=None if stream else http1.Bounds(1000, 9))
    )
    await asyncio.sleep(0)
    arrive(recorded.connection, b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
    piece = b"%x\r\n%s\r\n" % (size // 8, b"x" * (size // 8))
    for _ in range(8):
        arrive(recorded.connection, piece)
    await asyncio.sleep(0)
    assert recorded.told == []
    if stream and status == 200:
        # A stream has no maximum size: its reader consumes what arrives.
        assert (await asking).status == 200
        return
    arrive(recorded.connection, b"1\r\nx\r\n")
    with pytest.raises(http1.Error, match=f"the response is larger than {size} bytes"):
        await asking
    assert recorded.told == ["lost"]


@pytest.mark.parametrize("bounds", [None, http1.ORDINARY])
async def test_what_a_few_bytes_can_become_is_bounded(bounds: http1.Bounds | None) -> None:
    recorded = RecordedConnection()
    bomb = gzip.compress(bytes(1 << 26))
    asking = await recorded.ask(HEAD, bounds=bounds)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    arrive(recorded.connection, head + bomb)

    async def read() -> None:
        async for _ in (await asking).pieces():
            pass

    with pytest.raises(http1.Error, match="bytes become more than"):
        await read()
