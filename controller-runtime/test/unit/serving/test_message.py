# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Targets, heads and headers, without a connection."""

from email.utils import formatdate

import pytest

from controller_runtime.serving import Headers, HTTPResponse, message


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        (b"/", "/", {}),
        (b"/a%20b%2Fc?x=1&x=2&y", "/a b/c", {"x": ["1", "2"], "y": [""]}),
        (b"/a?x=a+b%26#part", "/a", {"x": ["a b&"]}),
        (b"/%ff", "/\N{REPLACEMENT CHARACTER}", {}),
        (b"http://host:1/a?x=1", "/a", {"x": ["1"]}),
        (b"http://host", "/", {}),
        (b"//a?b", "//a", {"b": [""]}),
        (b"http://[", "http://[", {}),
        (b"*", "*", {}),
        (b"/" + b"x" * 5000, "/" + "x" * 5000, {}),
    ],
)
def test_a_target_is_a_path_and_a_query(raw: bytes, path: str, query: dict[str, list[str]]) -> None:
    assert message.target(raw) == (path, query)


def test_an_answer_is_one_piece_with_its_length_its_type_and_the_date() -> None:
    answer = HTTPResponse(status=403, body=b"no", content_type="text/x", headers={"X-A": "b"})
    assert message.render(answer, message.CLOSE, 0) == (
        b"HTTP/1.1 403 Forbidden\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/x\r\nX-A: b\r\n"
        b"Connection: close\r\nContent-Length: 2\r\n\r\nno"
    )


def test_an_answer_to_head_keeps_its_length_and_loses_its_body() -> None:
    head = message.render(HTTPResponse.text("hello"), b"", 0, headless=True)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"X-Content-Type-Options: nosniff\r\nContent-Length: 5\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_has_neither_length_nor_type(status: int) -> None:
    data = message.render(HTTPResponse(status=status, body=b"x"), b"", 0)
    assert data.endswith(b"GMT\r\n\r\n")
    assert b"Content-" not in data


def test_a_status_nobody_named_is_sent_without_a_name() -> None:
    assert message.render(HTTPResponse(status=599), b"", 0).startswith(b"HTTP/1.1 599 \r\nDate")


@pytest.mark.parametrize(
    "answer",
    [
        HTTPResponse(headers={"X": "a\r\nSet-Cookie: b"}),
        HTTPResponse(headers={"X\n": "a"}),
        HTTPResponse(content_type="a\nb"),
    ],
)
def test_a_header_cannot_bring_another(answer: HTTPResponse) -> None:
    assert message.render(answer, b"", 0) == message.render(message.BROKEN, b"", 0)


def test_headers_are_found_in_any_case_and_decoded() -> None:
    headers = Headers({b"content-type": b"a/b", b"x-odd": b"\xc3\xa4\xff"})
    assert headers["Content-Type"] == headers.get("CONTENT-TYPE") == "a/b"
    assert headers["X-Odd"] == "ä\udcff"
    assert "Authorization" not in headers
    assert headers.get("Über", "") == ""
    assert (list(headers), len(headers)) == (["content-type", "x-odd"], 2)


@pytest.mark.parametrize(
    "second", [0, 951_782_399, 1_900_000_000, *(days * 86_400 * 29 for days in range(1, 14))]
)
def test_the_date_is_that_of_mail(second: int) -> None:
    answer = message.render(HTTPResponse(status=200, body=b""), message.KEEP, second)
    assert f"\r\nDate: {formatdate(second, usegmt=True)}\r\n".encode() in answer
