# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The server refuses request heads that Go's server refuses, and heads that two servers could read differently."""

import tracemalloc

import pytest

from ctrl_testkit.connections import GET, POST, Client, Service, settle

BODY = b"3\r\nabc\r\n0\r\n\r\n"
MISSING = b"400 Bad Request: missing required Host header"
MALFORMED = b"400 Bad Request: malformed Host header"
TOO_MANY = b"400 Bad Request: too many Host headers"
ENCODING = b"501 Not Implemented: unsupported transfer encoding"
VERSION = b"505 HTTP Version Not Supported: unsupported protocol version"
BAD = b"400 bad request\n"


def head(*fields: bytes, line: bytes = b"GET /echo HTTP/1.1") -> bytes:
    return b"\r\n".join([line, *fields, b"", b""])


def post(*fields: bytes, body: bytes = b"abc", version: bytes = b"1.1") -> bytes:
    return head(b"Host: x", *fields, line=b"POST /echo HTTP/" + version) + body


async def assert_refused(service: Service, data: bytes, answer: bytes) -> None:
    """Assert that the server gives the answer and closes the connection, and handles neither this request nor the next.

    The bytes are sent one at a time, in pieces of seven, and at once.
    """
    for size in (1, 7, len(data)):
        client = await service.connect()
        for at in range(0, len(data), size):
            await client.send(data[at : at + size])
            await settle()
        await client.send(GET)
        assert await client.next() == (int(answer[:3]), answer)
        assert await client.ends() == b""
    assert not service.requests


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (head(), MISSING),
        (head(b"Hos: x"), MISSING),
        (head(line=b"GET http://x/echo HTTP/1.1"), MISSING),
        (head(b"Content-Length: 3", line=b"POST /echo HTTP/1.1") + b"abc", MISSING),
        (head(b"Host: x", b"Host: y"), TOO_MANY),
        (head(b"Host: x", b"Host: x"), TOO_MANY),
        (head(b"Host: x", b"A: b", b"hOST: x"), TOO_MANY),
        (head(b"Host:", b"Host: x"), TOO_MANY),
        (head(b"Host: x", b"Host: y", line=b"GET /echo HTTP/1.0"), TOO_MANY),
        (head(b"Host: x", b"Host: y", line=b"GET http://x/echo HTTP/1.1"), TOO_MANY),
        *((head(b"Host: a%cb" % each), MALFORMED) for each in b' \t/\\@"<>#?^|{}`\x80\xff'),
        (head(b"Host: a b", line=b"GET /echo HTTP/1.0"), MALFORMED),
    ],
)
async def test_a_request_names_its_host_once(service: Service, data: bytes, answer: bytes) -> None:
    await assert_refused(service, data, answer)


@pytest.mark.parametrize(
    "data",
    [
        head(line=b"GET /echo HTTP/1.0"),
        head(b"Host:"),
        head(b"Host: \t x.y:80 \t"),
        head(b"Host: [::1%25a]:8443"),
        head(b"hOsT: a_b~!$&'()*+,;="),
        head(b"Host: x", line=b"GET http://y/echo HTTP/1.1"),
        head(b"Host: x", b"X-Forwarded-Host: a", b"X: host"),
    ],
)
async def test_other_hosts_are_served(client: Client, data: bytes) -> None:
    assert await client.ask(data) == (200, b"GET -")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        *(
            (post(b"Transfer-Encoding: " + each, body=BODY), ENCODING)
            for each in (
                b"gzip",
                b"gzip, chunked",
                b"identity",
                b",chunked",
                b"xchunked",
                b"chunked;q=1",
                b'"chunked"',
                b"\xa0chunked",
                b"chunked x",
            )
        ),
        (post(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked", body=BODY), ENCODING),
        (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=BODY), BAD),
        (post(b"Transfer-Encoding: chunked, gzip", body=BODY), BAD),
        (post(b"Transfer-Encoding:", body=BODY), BAD),
        (post(b"Transfer-Encoding: chunked", b"Content-Length: 3", body=BODY), BAD),
        (post(b"Content-Length: 6", b"Transfer-Encoding: chunked", body=b"0\r\n\r\nG"), BAD),
        (post(b"Connection: keep-alive", b"Transfer-Encoding: chunked", body=BODY, version=b"1.0"), BAD),
        (post(b"Content-Length: 3", b"Content-Length: 4"), BAD),
        *(
            (post(b"Content-Length: " + each), BAD)
            for each in (b"3, 3", b"+3", b"-3", b"0x3", b"3 3", b"3.0", b"3\f", b"9" * 23, b"1_0")
        ),
    ],
)
async def test_the_end_of_a_body_is_not_in_doubt(service: Service, data: bytes, answer: bytes) -> None:
    await assert_refused(service, data, answer)


@pytest.mark.parametrize("value", [b"chunked", b"CHUNKED", b" chunked "])
async def test_chunks_are_read_however_their_encoding_is_written(client: Client, value: bytes) -> None:
    assert await client.ask(post(b"Transfer-Encoding: " + value, body=BODY)) == (200, b"POST abc")
    assert await client.ask(POST) == (200, b"POST abc")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        *(
            (head(b"Host: x", line=b"GET /echo" + each), VERSION)
            for each in (b" HTTP/0.9", b" HTTP/2.0", b"")
        ),
        *(
            (head(b"Host: x", each), BAD)
            for each in (b"X : a", b"X Y: a", b": a", b"X", b"X\x01: a", b"X[: a")
        ),
        *(
            (head(b"Host: x", each), BAD)
            for each in (b"X\x00: a", b"X(: a", b"X/Y: a", b"X\xc3: a", b'"X": a')
        ),
        *((head(b"Host: x", b"X: a%cb" % each), BAD) for each in b"\x00\x01\r"),
        *((head(b"Host: x", b"X: a", each), BAD) for each in (b" folded", b"\tfolded")),
        *((head(b"Host: x", line=each), BAD) for each in (b"GET /\x01 HTTP/1.1", b"GET echo HTTP/1.1")),
        (b"GET /echo HTTP/1.1\nHost: x\n\n", BAD),
        (b"GET /echo HTTP/1.1\rHost: x\r\r", BAD),
    ],
)
async def test_a_malformed_head_is_refused(service: Service, data: bytes, answer: bytes) -> None:
    await assert_refused(service, data, answer)


async def test_requests_before_a_refused_one_are_answered_and_none_after(
    service: Service, client: Client
) -> None:
    await client.send(GET + head() + GET)
    assert [await client.next() for _ in range(2)] == [(200, b"GET -"), (400, MISSING)]
    assert await client.ends() == b""
    assert len(service.requests) == 1


async def test_trailers_are_not_kept(client: Client) -> None:
    await client.send(post(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n"))
    tracemalloc.start()
    try:
        for number in range(50):
            await client.send(b"".join(b"%x:\r\n" % (number << 12 | each) for each in range(150)))
        await settle()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200_000
    await client.send(b"Host: y\r\n\r\n")
    assert await client.next() == (200, b"POST abc")
