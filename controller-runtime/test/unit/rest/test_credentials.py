# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Token files are read again when they may have been rewritten; if that fails, the last token is used."""

from pathlib import Path

import anyio
import pytest

from controller_runtime import rest


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
