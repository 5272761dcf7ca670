# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Error responses: for any body, an error with code, reason and the server's requested delay. Media types of the others."""

from datetime import UTC, datetime

import pytest

from controller_runtime import rest
from controller_runtime.machinery import errors as api
from controller_runtime.rest import errors


def test_a_status_becomes_the_error_of_its_reason() -> None:
    body = b'{"kind":"Status","code":409,"reason":"AlreadyExists","message":"pods \\"x\\" already exists"}'
    error = errors.status_error(409, {}, body)
    assert isinstance(error, api.AlreadyExistsError)
    assert str(error) == 'pods "x" already exists'


@pytest.mark.parametrize(
    "body", [b"upstream connect error", b"", b"[1]", b'{"kind":"Pod"}', b"\xff\xfe", b'{"message":"caf\xe9"}']
)
def test_a_body_that_is_no_status_still_gives_the_code(body: bytes) -> None:
    error = errors.status_error(503, {"Retry-After": "3"}, body)
    assert isinstance(error, api.ServerError)
    assert (error.code, error.retry_after) == (503, 3)
    assert "503" in str(error)


def test_a_body_that_would_take_seconds_to_decode_is_taken_as_a_text() -> None:
    large = b'{"kind":"Status","code":409,"message":"no","details":{"causes":[' + b"{}," * 100_000 + b"{}]}}"
    error = errors.status_error(500, {}, large)
    assert isinstance(error, api.ServerError)
    assert str(error).startswith('the server answered 500: {"kind":"Status","code":409,')
    assert len(str(error)) < 600


NGINX = b"""<html>\r\n<head><title>502 Bad Gateway</title><style>h1 {color: red}</style></head>\r\n<body>
<!-- a padding to disable MSIE and Chrome friendly error page -->
<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx/1.25 &amp; more</center>\r\n</body>\r\n</html>"""


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        pytest.param(502, NGINX, "502 Bad Gateway 502 Bad Gateway nginx/1.25 & more", id="nginx"),
        pytest.param(
            407,
            b"<!DOCTYPE html><title>Proxy\nlogin</title>",
            "Proxy login",
            id="a proxy that asks to log in",
        ),
        pytest.param(503, b"upstream connect error", "upstream connect error", id="text of Envoy"),
        pytest.param(502, b'{"message":"no route"}', '{"message":"no route"}', id="JSON of a gateway"),
        pytest.param(403, b"<h1>no \x1b[31m</h1>", "no \\x1b[31m", id="control characters"),
        pytest.param(502, b"<p>cut <a href=" + b"x" * 99_999, "cut", id="a tag that is cut off"),
        pytest.param(502, b"<script>" + b"x" * 99_999, "", id="a script that is cut off"),
        pytest.param(502, b"<p" + b"<" * 99_999, "", id="only brackets"),
        pytest.param(502, b"<p>" + b"a" * 99_999, "a" * 512 + " ...", id="a long page"),
        pytest.param(502, "<p>größer".encode("latin-1"), "gr\ufffd\ufffder", id="not UTF-8"),
    ],
)
def test_the_page_of_a_proxy_gives_host_code_and_text(code: int, body: bytes, said: str) -> None:
    error = errors.status_error(code, {"Content-Type": "text/html"}, body, host="https://api:6443")
    expected = f": {said}" if said else " without a message"
    assert str(error) == f"https://api:6443: the server answered {code}{expected}"
    assert error.code == code


@pytest.mark.parametrize(
    ("seconds", "wait"), [("5", 5), ("86400", 60), ("1" + "0" * 400, 60), ("-9", 0), ('"5"', None)]
)
def test_the_wait_that_a_status_names_is_a_minute_at_most(seconds: str, wait: float | None) -> None:
    body = f'{{"kind":"Status","details":{{"retryAfterSeconds":{seconds}}}}}'.encode()
    assert errors.status_error(503, {}, body).retry_after == wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("5", 5),
        ("-5", 0),
        ("Wed, 01 Jan 2025 00:00:30 GMT", 30),
        ("Wed, 01 Jan 2025 02:00:30 +0200", 30),
        ("Wednesday, 01-Jan-25 00:00:30 GMT", 30),
        ("Wed Jan  1 00:00:30 2025", 30),
        ("soon", None),
        ("86400", 60),
        ("9" * 400, 60),
        ("-" + "9" * 5000, 0),
        ("9" * 5000, 60),
        ("Thu, 02 Jan 2025 00:00:00 GMT", 60),
        ("Wed, 01 Jan 99999999 00:00:30 GMT", None),
        ("Wed, 01 Jan 2025 00:00:30 +9999999999", None),
        ("²", None),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_a_minute_at_most(
    value: str | None, seconds: float | None
) -> None:
    assert errors.parse_retry_after(value, datetime(2025, 1, 1, tzinfo=UTC)) == seconds


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
