# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Real sockets, on both event loops: addresses, TLS, proxies, and error messages."""

import asyncio
import contextlib
import importlib.util
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from controller_runtime import rest
from controller_runtime.envtest import Authority
from controller_runtime.rest.http1 import dial
from ctrl_testkit.connections import listening

pytestmark = pytest.mark.real_time

GET = rest.Request("GET", "/x", timeout=60)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "uvloop" and importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    return lambda main: anyio.run(main, backend_options={"use_uvloop": request.param == "uvloop"})


class Trust:
    """A certificate authority, the TLS configuration of clients that trust it, and TLS contexts of its servers."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.create("test-ca")
        self.client = rest.TLSConfig(ca=self.authority.certificate)
        self._folder = folder

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.authority.server(names[0], list(names)).write(self._folder, names[0]))
        return context


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(OK)
        await writer.drain()


class Proxy:
    """A proxy that answers plain requests itself and opens a tunnel for CONNECT, or answers it with ``refusal``."""

    def __init__(self, refusal: bytes = b"") -> None:
        self.heads: list[str] = []
        self._refusal = refusal

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if not head.startswith("CONNECT"):
                writer.write(OK)
            elif self._refusal:
                writer.write(self._refusal)
            else:
                return await self._tunnel(head.split()[1], reader, writer)
            await writer.drain()

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*target.split(":"))
        writer.write(b"HTTP/1.1 200 Connection established\r\nTransfer-Encoding: chunked\r\n\r\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pump, reader, there[1])
            tasks.start_soon(_pump, there[0], writer)
        there[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()


async def reason(config: rest.Config) -> str:
    """Return the error message, without the host, of a connection with ``config`` that fails."""
    with pytest.raises(rest.ConnectError) as raised:
        async with rest.Transport(config) as transport:
            await transport.send(GET)
    return str(raised.value).removeprefix(f"{config.host}: ")


def test_a_request_of_each_size_and_an_answer_over_tls(run: Run, trust: Trust) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := (await reader.readuntil(b"\r\n\r\n")).decode():
            body = await reader.readexactly(int(head.partition("Content-Length: ")[2].split()[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def main() -> None:
        async with (
            listening(echo, trust.server("127.0.0.1")) as port,
            rest.Transport(rest.Config(f"https://127.0.0.1:{port}", tls=trust.client)) as transport,
        ):
            for size in (0, 1, 1 << 16, (1 << 16) + 1, 5_000_000):
                sent = b"x" * size
                answer = await transport.send(rest.Request("PUT", "/x", body=sent))
                assert await answer.read() == sent

    run(main)


def test_a_stream_over_tls_holds_its_server_and_ends_at_once(run: Run, trust: Trust) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_535 + b"\n")
            await writer.drain()
            sent += 1

    async def main() -> None:
        async with (
            listening(flood, trust.server("127.0.0.1")) as port,
            rest.Transport(rest.Config(f"https://127.0.0.1:{port}", tls=trust.client)) as transport,
        ):
            stream = await transport.send(rest.Request("GET", "/x", stream=True))
            lines = stream.lines()
            assert len(await anext(lines)) == 65_535
            before = -1
            with anyio.fail_after(60):
                while before != sent:
                    before = sent
                    await anyio.sleep(0.2)
            assert sent < 500
            for _ in range(sent):
                await anext(lines)
            with anyio.fail_after(60):
                await stream.close()
                await stream.close()

    run(main)


def test_a_proxy_is_asked_for_a_plain_server_by_its_whole_address(run: Run) -> None:
    proxy = Proxy()

    async def main() -> None:
        async with listening(proxy) as port:
            config = rest.Config("http://server.test:81/base", proxy=f"http://jane:secret@127.0.0.1:{port}")
            async with rest.Transport(config) as transport:
                for _ in range(2):
                    assert (await transport.send(GET)).status == 200

    run(main)
    line, *headers = proxy.heads[1].split("\r\n")
    assert line == "GET http://server.test:81/base/x HTTP/1.1"
    assert {"Host: server.test:81", "Proxy-Authorization: Basic amFuZTpzZWNyZXQ="} <= set(headers)


@pytest.mark.parametrize("secure", [False, True])
def test_a_proxy_makes_a_tunnel_to_a_server_with_tls(run: Run, trust: Trust, secure: bool) -> None:
    proxy = Proxy()
    scheme, context = ("https", trust.server("localhost")) if secure else ("http", None)

    async def main() -> None:
        async with (
            listening(answering, trust.server("server.test")) as server,
            listening(proxy, context) as port,
        ):
            tls = rest.TLSConfig(ca=trust.authority.certificate, server_name="server.test")
            where = f"https://127.0.0.1:{server}"
            config = rest.Config(
                where, tls=tls, proxy=f"{scheme}://jane:secret@localhost:{port}", user_agent="me"
            )
            async with rest.Transport(config) as transport:
                for _ in range(3):
                    assert (await transport.send(GET)).status == 200
            assert len(proxy.heads) == 1
            assert proxy.heads[0].split("\r\n") == [
                f"CONNECT 127.0.0.1:{server} HTTP/1.1",
                f"Host: 127.0.0.1:{server}",
                "User-Agent: me",
                "Proxy-Authorization: Basic amFuZTpzZWNyZXQ=",
                "",
                "",
            ]
            wrong = rest.Config(where, tls=trust.client, proxy=f"{scheme}://localhost:{port}")
            assert "certificate verify failed" in await reason(wrong)

    run(main)


def test_a_proxy_that_refuses_or_is_not_there_is_named(run: Run, trust: Trust) -> None:
    refusing = Proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 5\r\n\r\nwho??")

    async def main() -> None:
        async with listening(refusing) as port:
            proxy = f"http://u:secret@127.0.0.1:{port}"
            said = await reason(rest.Config("https://server.test", tls=trust.client, proxy=proxy))
            assert said == f"proxy http://127.0.0.1:{port}: CONNECT server.test:443 returned status 407"
        for host in ("https://server.test", "http://server.test"):
            config = rest.Config(host, proxy="http://u:secret@127.0.0.1:1")
            assert await reason(config) == "proxy http://127.0.0.1:1: connection refused"
        config = rest.Config("http://server.test", proxy="socks5://127.0.0.1:1")
        assert await reason(config) == "socks5://127.0.0.1:1 is not the address of an HTTP server"

    run(main)


def test_a_server_that_cannot_be_spoken_to_is_told_from_one_that_is_not_trusted(
    run: Run, trust: Trust
) -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def speaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()

    async def main() -> None:
        async with listening(speaking) as plain, listening(answering, trust.server("127.0.0.1")) as secure:
            assert "SSL" in await reason(rest.Config(f"https://127.0.0.1:{plain}", tls=trust.client))
            assert "certificate verify failed" in await reason(rest.Config(f"https://127.0.0.1:{secure}"))
            mistaken = rest.Config(f"https://localhost:{secure}", tls=trust.client)
            assert "certificate is not valid for 'localhost'" in await reason(mistaken)
        async with listening(closing) as port:
            said = await reason(rest.Config(f"https://127.0.0.1:{port}", tls=trust.client))
            assert said in (
                "the server closed the connection during the TLS handshake",
                "connection reset by peer",
            )
        unknown = await reason(rest.Config("http://no-such-host.invalid"))
        assert "not known" in unknown or "name resolution" in unknown
        assert (
            await reason(rest.Config("localhost:6443"))
            == "localhost:6443 is not the address of an HTTP server"
        )

    run(main)


def test_of_several_addresses_the_first_that_answers_is_taken(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as good, socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            # A client that connects to a full queue gets no response.
            filling = [socket.socket() for _ in range(3)]
            for each in filling:
                each.setblocking(False)
                each.connect_ex(deaf.getsockname())
            answers, hangs = info(good.getsockname()), info(deaf.getsockname())
            refuses = info(("127.0.0.1", 1))
            for order in ([answers], [refuses, answers], [hangs, answers], [refuses, hangs, answers]):
                with anyio.fail_after(60):
                    made = await dial._connected(order)
                assert made.getpeername() == good.getsockname()
                made.close()
            with pytest.raises(ConnectionRefusedError):
                await dial._connected([refuses, refuses])
            nowhere = info(("255.255.255.255", 1))
            with pytest.raises(OSError, match="connection refused; ") as raised:
                await dial._connected([refuses, nowhere])
            assert raised.value.errno is None
            with anyio.move_on_after(0.5) as scope:
                await dial._connected([hangs, hangs])
            assert scope.cancelled_caught
            for each in filling:
                each.close()

    run(main)


def info(address: Any) -> dial.AddrInfo:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test"], ids=["a long label", "an empty label"])
def test_a_host_that_no_resolver_accepts_is_an_error_of_connecting(run: Run, host: str) -> None:
    async def main() -> None:
        async with rest.Transport(rest.Config(f"http://{host}")) as transport:
            with pytest.raises(
                rest.ConnectError, match=rf"^http://{host}: '{host}' is not a host name: .*label"
            ):
                await transport.send(GET)

    run(main)


@pytest.mark.parametrize("name", [".test", "a\0.test"])
def test_a_server_name_that_tls_does_not_accept_is_an_error_of_connecting(
    run: Run, trust: Trust, name: str
) -> None:
    tls = rest.TLSConfig(ca=trust.authority.certificate, server_name=name)

    async def main() -> None:
        async with rest.Transport(rest.Config("https://127.0.0.1:1", tls=tls)) as transport:
            with pytest.raises(rest.ConnectError, match=r"test' is not a host name"):
                await transport.send(GET)

    run(main)


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener that lets the packets of further connections vanish."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_server_that_does_not_answer_in_time_is_an_error_of_connecting(run: Run, full: int) -> None:
    async def main() -> None:
        async with rest.Transport(rest.Config(f"http://127.0.0.1:{full}")) as transport:
            with pytest.raises(rest.ConnectTimeoutError, match=r": no connection within 0[.][012]\d* s$"):
                await transport.send(rest.Request("PUT", "/x", timeout=0.2))
        config = rest.Config("https://server.test", proxy=f"http://127.0.0.1:{full}")
        async with rest.Transport(config) as transport:
            text = rf": no connection through the proxy http://127.0.0.1:{full} within 0[.][012]\d* s$"
            with pytest.raises(rest.ConnectTimeoutError, match=text):
                await transport.send(rest.Request("PUT", "/x", timeout=0.2))

    run(main)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such limit")
def test_the_time_out_of_the_kernel_is_named_as_its_own(
    run: Run, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "_SOCKET_OPTIONS", (("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 100),))

    async def main() -> None:
        async with rest.Transport(rest.Config(f"http://127.0.0.1:{full}")) as transport:
            with pytest.raises(rest.ConnectError, match=r": connection timed out$"):
                await transport.send(rest.Request("PUT", "/x", timeout=20))

    run(main)
