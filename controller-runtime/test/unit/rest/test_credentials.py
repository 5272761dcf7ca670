# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Token files, which are read again when they may have been rewritten, and client certificates in memory."""

import errno
import os
import ssl
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives import serialization

from controller_runtime import rest
from controller_runtime.envtest import Authority


class Token:
    """A token file, written as the kubelet writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("one")
        self.credentials = rest.TokenFile(path)

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def remove(self) -> None:
        self.path.unlink()


@pytest.fixture
def token(tmp_path: Path) -> Token:
    return Token(tmp_path / "token")


async def bearer(credentials: rest.Credentials) -> str:
    return (await credentials.headers())["Authorization"].removeprefix("Bearer ")


async def test_a_rewritten_token_is_used_after_a_minute(token: Token) -> None:
    credentials = token.credentials
    assert await bearer(credentials) == "one"
    token.write("two")
    await anyio.sleep(59)
    assert await bearer(credentials) == "one"
    await anyio.sleep(1)
    assert await bearer(credentials) == "two"


async def test_a_refused_token_is_read_again_at_once(token: Token) -> None:
    credentials = token.credentials
    await credentials.headers()
    assert not await credentials.refresh(), "the file has not changed"
    token.write("two")
    assert await credentials.refresh()
    assert await bearer(credentials) == "two"


async def test_the_last_token_serves_while_the_file_is_gone(token: Token) -> None:
    credentials = token.credentials
    await credentials.headers()
    token.remove()
    await anyio.sleep(120)
    assert await bearer(credentials) == "one"


async def test_a_file_that_never_held_a_token_is_named(token: Token) -> None:
    token.write(" \n")
    with pytest.raises(rest.ConfigError, match=f"token file {token.path}: is empty"):
        await token.credentials.headers()


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x00b", "a\tb"])
async def test_a_token_that_no_header_can_have_is_refused_before_any_request(token: Token, text: str) -> None:
    with pytest.raises(rest.ConfigError, match="the token contains a line break"):
        rest.StaticToken(text)
    token.write(text)
    with pytest.raises(rest.ConfigError, match=f"token file {token.path}: the token contains a line break"):
        await token.credentials.headers()
    token.write("good")
    assert await bearer(token.credentials) == "good"
    token.write(text)
    assert not await token.credentials.refresh(), "the last good token is used"


def _missing(patched: pytest.MonkeyPatch) -> None:
    patched.delattr(os, "memfd_create")


def _failing(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    def fail(name: str, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    return lambda patched: patched.setattr(os, "memfd_create", fail)


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(_missing, id="another system"),
        pytest.param(_failing(errno.ENOSYS), id="an old kernel"),
        pytest.param(_failing(errno.EPERM), id="a sandbox"),
    ],
)
def test_where_no_files_are_in_memory_a_private_file_has_the_key_only_while_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    modes: list[int] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: str, *_: object, **__: object) -> None:  # type: ignore[override]  # one use
            modes.append(stat.S_IMODE(Path(certfile).stat().st_mode))
            super().load_cert_chain(certfile)

    without(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = Authority.create("ca").client("me")
    rest.load_chain(Context(ssl.PROTOCOL_TLS_CLIENT), pair.certificate, pair.key)
    assert modes == [0o600]
    assert [*tmp_path.iterdir()] == []


def test_an_encrypted_key_is_an_error_instead_of_a_question_on_the_terminal() -> None:
    pair = Authority.create("ca").client("me")
    plain = serialization.load_pem_private_key(pair.key, None)
    locked = plain.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    problem = r"^client certificate: the private key is encrypted: use a key without a password"
    with pytest.raises(rest.ConfigError, match=problem):
        rest.TLSConfig(cert=pair.certificate, key=locked).ssl_context()
