# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Token files: read again when they may have been rewritten, and never lost."""

from pathlib import Path

import anyio
import pytest

from controller_runtime import rest


async def bearer(credentials: rest.Credentials) -> str:
    return (await credentials.headers())["Authorization"].removeprefix("Bearer ")


async def test_a_rewritten_token_is_used_after_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = rest.TokenFile(path)
    assert await bearer(credentials) == "one"
    path.write_text("two")
    await anyio.sleep(59)
    assert await bearer(credentials) == "one"
    await anyio.sleep(1)
    assert await bearer(credentials) == "two"


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = rest.TokenFile(path)
    await credentials.headers()
    assert not await credentials.refresh(), "the file is as it was"
    path.write_text("two")
    assert await credentials.refresh()
    assert await bearer(credentials) == "two"


async def test_the_last_token_serves_while_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = rest.TokenFile(path)
    await credentials.headers()
    path.unlink()
    await anyio.sleep(120)
    assert await bearer(credentials) == "one"


async def test_a_file_that_never_held_a_token_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" \n")
    with pytest.raises(rest.ConfigError, match=f"token file {path}: is empty"):
        await rest.TokenFile(path).headers()
