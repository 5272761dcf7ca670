# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The transport on a real connection: long lines, broken and silent servers, TLS, nothing left open."""

import asyncio
import contextlib
import gc
import importlib.util
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

from controller_runtime import rest
from controller_runtime.envtest import Authority, eventually
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest.http1 import Bounds, keepalive_socket
from ctrl_testkit.connections import listening

pytestmark = pytest.mark.real_time

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
GET = rest.Request("GET", "/x")


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a server that calls ``answer`` with the head of each request; yield its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            await answer(head, writer)
            await writer.drain()

    async with listening(serve, tls) as port:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


def body(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://127.0.0.1:443", "127.0.0.1:443"),
        ("https://127.0.0.1", "127.0.0.1"),
        ("https://jane:s3cret@[::1]:443/below", "[::1]:443"),
    ],
)
async def test_the_label_of_a_server_is_its_host_and_port_as_written(url: str, host: str) -> None:
    seen: list[str] = []
    async with rest.Transport(
        rest.Config(url), observe=lambda _code, _method, host: seen.append(host)
    ) as transport:
        with pytest.raises(rest.TransportError):
            await transport.send(GET)
    assert seen == [host]


async def test_an_answer_is_read_whole_and_the_request_is_sent_as_it_is() -> None:
    heads: list[str] = []

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(body(b'{"a":1}'))

    async with serving(answer) as host:
        config = rest.Config(
            f"{host}/prefix",
            credentials=rest.StaticToken("t"),
            user_agent="me",
            impersonate=rest.Impersonation("jane", groups=("a", "b,c")),
        )
        async with rest.Transport(config) as transport:
            request = rest.Request(
                "GET", "/n%2Fm", (("labelSelector", "a=b,c"),), {"Accept": "application/json"}
            )
            response = await transport.send(request)
            assert (response.status, await response.read()) == (200, b'{"a":1}')
    line, *headers = heads[0].split("\r\n")
    assert line == "GET /prefix/n%2Fm?labelSelector=a%3Db%2Cc HTTP/1.1"
    assert {"Authorization: Bearer t", "User-Agent: me", "Accept: application/json"} <= set(headers)
    assert [header for header in headers if header.startswith("Impersonate")] == [
        "Impersonate-User: jane",
        "Impersonate-Group: a",
        "Impersonate-Group: b,c",
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_page_of_a_proxy_is_an_error_with_host_code_and_text(*, stream: bool) -> None:
    page = b"<html><title>502 Bad Gateway</title></html>"

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))

    async with serving(answer) as host:
        address = host.replace("://", "://jane:s3cret@")
        async with rest.Transport(rest.Config(address)) as transport:
            response = await transport.send(rest.Request("GET", "/x", stream=stream))
            with pytest.raises(StatusError) as caught:
                await response.raise_for_status()
    assert str(caught.value) == f"{host}: the server answered 502: 502 Bad Gateway"


async def test_lines_of_any_length_arrive_whole_however_they_are_cut() -> None:
    long = b"x" * (20 << 20)

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        text = b"one\n" + long + b"\n\nlast"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text))
        for cut in (text[:2], text[2:5], text[5:]):
            writer.write(cut)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        response = await transport.send(rest.Request("GET", "/x", stream=True))
        assert [line async for line in response.lines()] == [b"one", long, b"", b"last"]
        await response.close()


async def test_a_line_without_an_end_is_given_up() -> None:
    sent = 0

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst\n")
        while sent < 1 << 28:
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1 << 20

    async with serving(answer) as url, rest.Transport(rest.Config(url)) as transport:
        response = await transport.send(rest.Request("GET", "/x", stream=True))
        lines = response.lines()
        assert await anext(lines) == b"first"
        with pytest.raises(rest.AnswerError, match="a line is longer than"):
            await anext(lines)
        await response.close()
    assert sent < 1 << 27


async def test_several_warnings_arrive_as_one_header() -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'HTTP/1.1 200 OK\r\nWarning: 299 - "a"\r\nWarning: 299 - "b"\r\nContent-Length: 0\r\n\r\n'
        )

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        assert (await transport.send(GET)).headers["warning"] == '299 - "a", 299 - "b"'


async def test_a_silent_server_is_given_up_in_time() -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        limits = [
            rest.Request("GET", "/x", timeout=0.05),
            rest.Request("GET", "/x", timeout=None, bounds=Bounds(1 << 20, 0.05)),
            rest.Request("GET", "/x", timeout=0.05, stream=True),
        ]
        for request in limits:
            with pytest.raises(rest.TransportTimeoutError, match=r"no response to GET /x within 0.05 s$"):
                await transport.send(request)


@pytest.mark.parametrize(
    ("request_", "tries"),
    [
        (GET, 2),
        (rest.Request("GET", "/x", stream=True), 1),
        (rest.Request("PUT", "/x", body=b"{}"), 1),
        (rest.Request("DELETE", "/x"), 1),
    ],
    ids=lambda value: f"{value.method}{' stream' * value.stream}" if isinstance(value, rest.Request) else "",
)
async def test_only_a_read_is_sent_again_when_its_connection_breaks(
    request_: rest.Request, tries: int
) -> None:
    heads: list[str] = []

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.close()

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        with pytest.raises(
            rest.TransportError, match=r"closed the connection without a response|reset by peer"
        ):
            await transport.send(request_)
    assert len(heads) == tries


async def test_an_answer_that_stops_coming_is_given_up() -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nx")
        await writer.drain()
        await asyncio.sleep(30)

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        text = r"no further part of the response to GET /x within 0.1 s$"
        with pytest.raises(rest.TransportTimeoutError, match=text):
            await transport.send(rest.Request("GET", "/x", timeout=0.1))


async def test_a_hanging_connection_costs_one_call_and_no_stream() -> None:
    connections: list[asyncio.StreamWriter] = []
    hang = False

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        if writer not in connections:
            connections.append(writer)
        if "GET /stream" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.6)
            writer.write(b"5\r\nlate\n\r\n0\r\n\r\n")
        elif hang and writer in connections[:4]:
            await asyncio.sleep(30)
        else:
            await asyncio.sleep(0.05)
            writer.write(body(b"ok"))

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        stream = await transport.send(rest.Request("GET", "/stream", stream=True))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(transport.send, GET)
        assert len(connections) == 4
        hang = True
        with pytest.raises(rest.TransportTimeoutError):
            await transport.send(rest.Request("GET", "/x", timeout=0.3))
        for _ in range(3):
            assert (await transport.send(rest.Request("GET", "/x", timeout=20))).status == 200
        assert [line async for line in stream.lines()] == [b"late"]


async def test_sockets_notice_within_thirty_seconds_that_the_other_end_has_vanished() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))
    with keepalive_socket(info) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            tcp = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]
            idle, interval, probes, unanswered = (made.getsockopt(socket.IPPROTO_TCP, name) for name in tcp)
            assert (idle + interval * probes, unanswered) == (30, 30_000)


def test_an_option_that_the_system_lacks_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)  # as on macOS
    spec = importlib.util.find_spec("controller_runtime.rest.http1.dial")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_breaks_off_is_an_error(stream: bool) -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf\n")
        await writer.drain()
        writer.close()

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:

        async def lines() -> list[bytes]:
            response = await transport.send(rest.Request("POST", "/x", stream=stream))
            return [line async for line in response.lines()]

        with pytest.raises(rest.TransportError, match=host):
            await lines()


async def test_leaving_with_open_streams_leaves_nothing_behind() -> None:
    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")

    async with serving(answer) as host:
        async with rest.Transport(rest.Config(host)) as transport:
            response = await transport.send(rest.Request("GET", "/x", stream=True))
            lines = response.lines()
            assert await anext(lines) == b"one"
            with anyio.move_on_after(0.05) as scope:
                await anext(lines)
            assert scope.cancelled_caught
        with pytest.raises(rest.TransportError, match="not open"):
            await transport.send(GET)
    gc.collect()  # an unclosed connection would warn now, and warnings are errors


def showing(users: list[str], folder: Path, host: str) -> tuple[Authority, ssl.SSLContext, Any]:
    """Return an authority, the TLS context of a server for ``host``, and a function that answers its requests.

    The function appends the name on the client's certificate to ``users``.
    """
    authority = Authority.create("test-ca")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    context.load_cert_chain(*authority.server(host, [host]).write(folder, "server"))
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert")
        users.extend(v for part in shown["subject"] for k, v in part if k == "commonName")
        writer.write(body(b"ok"))

    return authority, context, answer


async def test_a_client_certificate_is_shown_and_the_server_name_checked(tmp_path: Path) -> None:
    users: list[str] = []
    authority, context, answer = showing(users, tmp_path, "other.test")
    me = authority.client("me")
    tls = rest.TLSConfig(ca=authority.certificate, cert=me.certificate, key=me.key, server_name="other.test")
    async with serving(answer, context) as host:
        async with rest.Transport(rest.Config(host, tls=tls)) as transport:
            assert (await transport.send(GET)).status == 200
        assert users == ["me"]
        wrong = rest.TLSConfig(ca=authority.certificate, cert=me.certificate, key=me.key)
        async with rest.Transport(rest.Config(host, tls=wrong)) as transport:
            with pytest.raises(rest.TransportError, match="certificate"):
                await transport.send(GET)


def test_the_stamp_changes_with_the_files(tmp_path: Path) -> None:
    pair = Authority.create("test-ca").client("me")
    cert, key = pair.write(tmp_path)
    tls = rest.TLSConfig(cert=cert, key=key)
    before = tls.stamp()
    assert before == tls.stamp()
    cert.write_bytes(pair.certificate + b"\n")
    assert tls.stamp() != before
    cert.unlink()
    assert tls.stamp() != before


async def test_a_rewritten_client_certificate_is_shown_soon(
    tmp_path: Path,
) -> None:
    users: list[str] = []
    authority, context, answer = showing(users, tmp_path, "127.0.0.1")
    cert, key = authority.client("old").write(tmp_path)
    tls = rest.TLSConfig(ca=authority.certificate, cert=cert, key=key)
    async with (
        serving(answer, context) as host,
        rest.Transport(rest.Config(host, tls=tls), tls_check_period=0) as transport,
    ):
        await transport.send(GET)
        cert.write_bytes(b"half a certif")
        await transport.send(GET)
        authority.client("new").write(tmp_path)
        await transport.send(GET)
    assert users == ["old", "old", "new"]


async def test_an_issued_certificate_is_shown_as_soon_as_it_is_renewed(tmp_path: Path) -> None:
    users: list[str] = []
    authority, context, answer = showing(users, tmp_path, "127.0.0.1")
    old, new = authority.client("old"), authority.client("new")
    issued = rest.IssuedPair(old.certificate, old.key)
    tls = rest.TLSConfig(ca=authority.certificate, issued=issued)
    async with serving(answer, context) as host, rest.Transport(rest.Config(host, tls=tls)) as transport:
        await transport.send(GET)
        issued.renew(new.certificate, new.key)
        await transport.send(GET)
    assert users == ["old", "new"]


class Relay:
    """A server that passes bytes on to ``host``; its address is ``url``.

    It keeps each connection waiting until ``go_on`` is set, except as many as ``at_once``.
    """

    def __init__(self, host: str) -> None:
        self._to = int(host.rpartition(":")[2])
        self.go_on = asyncio.Event()
        self.at_once = 0
        self.accepted = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.close()
        await asyncio.sleep(0.1)  # time to notice that both sides are closed

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.accepted > self.at_once:
            await self.go_on.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                writer.write(data)
        writer.close()


class Fenced:
    """A transport to an https server behind a relay, and the requests that the server received."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.unanswered = 0
        self.may_write = True
        self.release = asyncio.Event()
        """Requests for ``/held`` are answered once it is set."""
        self.relay: Relay
        self.transport: rest.Transport

    @asynccontextmanager
    async def open(self, folder: Path, at_once: int = 0) -> AsyncIterator[Self]:
        """Open all three."""
        authority, context, _ = showing([], folder, "127.0.0.1")
        context.verify_mode = ssl.CERT_NONE

        async def answer(head: str, writer: asyncio.StreamWriter) -> None:
            self.heads.append(head.partition(" HTTP")[0])
            if "/held" in head:
                await self.release.wait()
            writer.write(body(b"{}"))

        def note() -> None:
            self.unanswered += 1

        async with serving(answer, context) as host, Relay(host) as self.relay:
            self.relay.at_once = at_once
            config = rest.Config(self.relay.url, tls=rest.TLSConfig(ca=authority.certificate))
            async with rest.Transport(
                config, may_write=lambda: self.may_write, unanswered=note
            ) as self.transport:
                yield self
            self.release.set()


@pytest.fixture
async def fenced(tmp_path: Path) -> AsyncIterator[Fenced]:
    async with Fenced().open(tmp_path) as made:
        yield made


async def test_a_write_that_waited_for_its_connection_is_not_sent_after_the_fence_closed(
    fenced: Fenced,
) -> None:
    async def lose() -> None:
        await asyncio.sleep(0.1)
        fenced.may_write = False
        fenced.relay.go_on.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose)
        with pytest.raises(rest.ConnectError, match="POST /a is not sent: leadership was lost"):
            await fenced.transport.send(rest.Request("POST", "/a"))
    await fenced.transport.send(rest.Request("GET", "/b"))
    with pytest.raises(rest.ConnectError, match="POST /c is not sent: leadership was lost"):
        await fenced.transport.send(rest.Request("POST", "/c"))
    fenced.may_write = True
    await fenced.transport.send(rest.Request("POST", "/d"))
    assert fenced.heads == ["GET /b", "POST /d"]
    assert (fenced.relay.accepted, fenced.unanswered) == (1, 0)


async def test_a_write_that_waited_for_its_turn_is_not_sent_after_the_fence_closed() -> None:
    heads: list[str] = []
    may_write = [True]

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        heads.append(head.partition(" HTTP")[0])
        writer.write(body(b"{}"))

    async with serving(answer) as host:
        config, patch = rest.Config(host, qps=5, burst=1), rest.Request("PATCH", "/x")
        async with rest.Transport(config, may_write=lambda: may_write[0]) as transport:
            await transport.send(patch)
            asyncio.get_running_loop().call_later(0.1, may_write.__setitem__, 0, False)
            with pytest.raises(rest.ConnectError, match="PATCH /x is not sent: leadership was lost"):
                await transport.send(patch)
            await transport.send(GET)
    assert heads == ["PATCH /x", "GET /x"]


async def test_a_write_without_a_response_is_reported_if_it_was_sent(fenced: Fenced) -> None:
    fenced.relay.go_on.set()
    reported = []
    for method in ("GET", "POST"):
        await fenced.transport.send(rest.Request("GET", "/connect"))
        with pytest.raises(rest.TransportTimeoutError) as caught:
            await fenced.transport.send(rest.Request(method, "/held", timeout=0.2))
        assert not isinstance(caught.value, rest.ConnectError)
        reported.append(fenced.unanswered)
    await fenced.transport.send(rest.Request("POST", "/connect"))
    with anyio.move_on_after(0.1):
        await fenced.transport.send(rest.Request("PATCH", "/held", body=b"{}"))
    assert [*reported, fenced.unanswered] == [0, 1, 2]


async def test_a_write_that_got_no_connection_in_time_was_not_sent(fenced: Fenced) -> None:
    with pytest.raises(
        rest.ConnectTimeoutError, match=rf"^{fenced.relay.url}: no connection within 0[.][012]\d* s$"
    ):
        await fenced.transport.send(rest.Request("POST", "/a", timeout=0.2))
    with anyio.move_on_after(0.2):
        await fenced.transport.send(rest.Request("POST", "/b"))
    assert (fenced.heads, fenced.unanswered) == ([], 0)


async def test_a_connection_that_cannot_be_opened_in_time_costs_no_other(tmp_path: Path) -> None:
    async with Fenced().open(tmp_path, at_once=2) as fenced:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(fenced.transport.send, rest.Request("GET", "/held"))
            await eventually(lambda: len(fenced.heads) == 2, timeout=20, reason="two requests arrive")
            with pytest.raises(rest.ConnectTimeoutError):
                await fenced.transport.send(rest.Request("GET", "/x", timeout=0.1))
            fenced.release.set()
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(fenced.transport.send, rest.Request("GET", "/y"))
        assert fenced.relay.accepted == 3


async def test_a_write_for_which_no_connection_became_free_was_not_sent(tmp_path: Path) -> None:
    release, unanswered = asyncio.Event(), list[bool]()

    async def answer(_head: str, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(body(b"{}"))

    async with (
        serving(answer) as host,
        rest.Transport(rest.Config(host), unanswered=lambda: unanswered.append(True)) as transport,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(256):
            tasks.start_soon(transport.send, GET)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(
            rest.ConnectTimeoutError, match=r"all 256 connections were in use for 0[.][01]\d* s$"
        ):
            await transport.send(rest.Request("POST", "/x", timeout=0.1))
        release.set()
        await transport.send(rest.Request("POST", "/x"))
    assert unanswered == []


async def test_a_connection_in_use_that_answers_after_another_timed_out_is_used_again() -> None:
    connections: list[asyncio.StreamWriter] = []
    release = asyncio.Event()

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        if writer not in connections:
            connections.append(writer)
        if "/held" in head:
            await release.wait()
        writer.write(body(b"ok"))

    async with serving(answer) as host, rest.Transport(rest.Config(host)) as transport:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, rest.Request("GET", "/held"))
            await anyio.lowlevel.checkpoint()
            with pytest.raises(rest.TransportTimeoutError):
                await transport.send(rest.Request("GET", "/held", timeout=1))
            release.set()
        await transport.send(GET)
        assert len(connections) == 2


async def test_an_unusable_certificate_is_a_configuration_error() -> None:
    with pytest.raises(rest.ConfigError, match="certificate authority"):
        async with rest.Transport(rest.Config("https://127.0.0.1:1", tls=rest.TLSConfig(ca=b"no pem"))):
            pass
