# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The effects of the TLS options, as clients on loopback see them."""

import asyncio
import http.client
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from controller_runtime import webhook
from controller_runtime.rest import load_chain
from controller_runtime.serving import Address, HTTPRequest, HTTPResponse, Server, ServerError, TLSOptions

CLIENT = webhook.SelfSigned("client").pair()


def trusting(*, pair: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    if pair is not None:
        load_chain(context, *pair)
    return context


def tls_1_2() -> ssl.SSLContext:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def seen(port: int, context: ssl.SSLContext) -> tuple[str | None, str, str | None] | None:
    """Return the TLS version, the cipher and the ALPN protocol of a connection, or None if the server refused it."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)
    try:
        connection.request("GET", "/")
        assert isinstance(connection.sock, ssl.SSLSocket)
        cipher = connection.sock.cipher()
        assert cipher is not None
        about = connection.sock.version(), cipher[0], connection.sock.selected_alpn_protocol()
        assert connection.getresponse().read() == b"hello"
    except OSError:
        return None
    else:
        return about
    finally:
        connection.close()


async def hello(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse.text("hello")


def ask(options: TLSOptions, *contexts: ssl.SSLContext) -> list[tuple[str | None, str, str | None] | None]:
    async def main() -> list[tuple[str | None, str, str | None] | None]:
        server = Server(
            Address("127.0.0.1", 0), {"/": hello}, tls=webhook.SelfSigned(), tls_options=options, name="test"
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.start)
            await server.ready()
            found = [await anyio.to_thread.run_sync(seen, server.port, each) for each in contexts]
            tasks.cancel_scope.cancel()
        return found

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main())


@pytest.mark.real_time
def test_versions_ciphers_and_protocols_are_those_chosen() -> None:
    new, old = ask(TLSOptions(minimum_version=ssl.TLSVersion.TLSv1_3), trusting(), tls_1_2())
    assert new is not None
    assert ((new[0], new[2]), old) == (("TLSv1.3", "http/1.1"), None)
    cipher = "ECDHE-ECDSA-AES256-GCM-SHA384"
    limited = TLSOptions(maximum_version=ssl.TLSVersion.TLSv1_2, ciphers=cipher, next_protocols=())
    assert ask(limited, trusting()) == [("TLSv1.2", cipher, None)]


@pytest.mark.real_time
def test_clients_need_a_certificate_of_an_authority_that_is_named(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(CLIENT[0])
    known, stranger = trusting(pair=CLIENT), trusting(pair=webhook.SelfSigned("stranger").pair())
    demanding = TLSOptions(client_ca=authority)
    assert [each is not None for each in ask(demanding, known, stranger, trusting())] == [True, False, False]
    lenient = TLSOptions(client_ca=CLIENT[0], client_certificate_required=False)
    assert [each is not None for each in ask(lenient, known, stranger, trusting())] == [True, False, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: TLSOptions(next_protocols=("h2", "http/1.1")), "only http/1.1 is served"),
        (lambda folder: TLSOptions(ciphers="NONSENSE"), "TLS options: "),
        (lambda folder: TLSOptions(client_ca=folder / "none"), "No such file or directory"),
        (lambda folder: TLSOptions(client_ca=b"nothing"), "TLS options: "),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    make: Callable[[Path], TLSOptions], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ServerError, match=message):
        make(tmp_path).apply(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_the_last_word_is_the_programs() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TLSOptions(configure=lambda given: setattr(given, "options", given.options | ssl.OP_NO_TICKET)).apply(
        context
    )
    assert context.options & ssl.OP_NO_TICKET


def test_a_server_that_cannot_use_its_options_gives_its_port_back() -> None:
    async def main() -> None:
        refused = Server(
            Address("127.0.0.1", 0), {}, tls=webhook.SelfSigned(), tls_options=TLSOptions(ciphers="NONSENSE")
        )
        port = refused.listen().getsockname()[1]
        with pytest.raises(ServerError, match="TLS options"):
            await refused.start()
        again = Server(Address("127.0.0.1", port), {})
        again.listen()
        again.close()

    asyncio.run(main())


class Renewed:
    """Certificates that change, and may fail to be read."""

    def __init__(self) -> None:
        self.serve(webhook.SelfSigned())

    def serve(self, made: webhook.SelfSigned) -> None:
        self.error: Exception | None = None
        self.served = made.context()

    def context(self) -> ssl.SSLContext:
        if self.error is not None:
            raise self.error
        return self.served


@pytest.mark.real_time
async def test_new_connections_begin_with_the_newest_certificate_and_open_ones_go_on() -> None:
    renewed = Renewed()
    options = TLSOptions(maximum_version=ssl.TLSVersion.TLSv1_2)
    server = Server(Address("127.0.0.1", 0), {"/": hello}, tls=renewed, tls_options=options)

    def shown() -> tuple[str | None, bytes | None]:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain,
            trusting().wrap_socket(plain) as connection,
        ):
            return connection.version(), connection.getpeercert(binary_form=True)

    def asked() -> bytes:
        kept.request("GET", "/")
        return kept.getresponse().read()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        kept = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusting(), timeout=20)
        assert await anyio.to_thread.run_sync(asked) == b"hello"
        used = kept.sock
        first, again = [await anyio.to_thread.run_sync(shown) for _ in range(2)]
        renewed.serve(webhook.SelfSigned())
        second = await anyio.to_thread.run_sync(shown)
        renewed.error = OSError("unreadable")
        third = await anyio.to_thread.run_sync(shown)
        assert await anyio.to_thread.run_sync(asked) == b"hello"
        assert kept.sock is used
        kept.close()
        tasks.cancel_scope.cancel()
    assert (first, second) == (again, third)
    assert first[1] != second[1]
    assert {first[0], second[0]} == {"TLSv1.2"}
