# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The media type that a successful response must have."""

import pytest

from controller_runtime import rest


@pytest.mark.parametrize("media_type", ["text/plain", "Text/Plain; charset=utf-8", ""])
async def test_a_log_is_a_text(media_type: str) -> None:
    response = rest.FakeResponse(200, b"a line\n", headers={"Content-Type": media_type})
    await response.raise_for_status(media_type="text/plain")


@pytest.mark.parametrize("media_type", ["text/html", "application/json"])
async def test_a_response_of_another_type_is_not_a_log(media_type: str) -> None:
    response = rest.FakeResponse(200, b"{}", headers={"Content-Type": media_type})
    with pytest.raises(rest.AnswerError, match=f"is of type '{media_type}', not text/plain"):
        await response.raise_for_status(media_type="text/plain")


async def test_a_response_must_be_json_unless_another_type_is_named() -> None:
    response = rest.FakeResponse(200, b"a line\n", headers={"Content-Type": "text/plain"})
    with pytest.raises(rest.AnswerError, match="not JSON"):
        await response.raise_for_status()
