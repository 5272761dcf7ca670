# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Heads as text, and addresses."""

from typing import Any

import pytest

from controller_runtime.rest import http1


def headers(*lines: tuple[bytes, bytes]) -> http1.Headers:
    made = http1.Headers()
    for line in lines:
        made.add(*line)
    return made


def test_headers_are_found_in_any_case_and_listed_as_they_came() -> None:
    found = headers((b"Content-Type", b"a/b "), (b"X-Empty", b""))
    assert (found["content-type"], found.get("CONTENT-TYPE"), found.get("none")) == ("a/b", "a/b", None)
    assert ("content-Type" in found, "none" in found) == (True, False)
    assert dict(found) == {"Content-Type": "a/b", "X-Empty": ""}
    with pytest.raises(KeyError, match=r"^'none'$"):
        found["none"]


def test_of_a_header_in_several_lines_the_first_counts_but_a_list_is_joined() -> None:
    found = headers((b"Retry-After", b"1"), (b"Warning", b"a"), (b"retry-after", b"2"), (b"warning", b"b"))
    assert (found["Retry-After"], found["Warning"], len(found)) == ("1", "a, b", 2)


def test_bytes_that_are_no_utf_8_survive() -> None:
    found = headers((b"A", b"caf\xe9"), (b"B", "café".encode()))
    assert found["a"].encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert found["b"] == "café"


def render(method: str = "GET", target: str = "/x", body: Any = None, **own: str) -> bytes:
    heads = http1.Heads(
        "/base", [("Host", "h"), ("User-Agent", "me"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
    )
    return heads.render(method, target, {name.replace("_", "-"): value for name, value in own.items()}, body)


def test_a_head_holds_what_is_shared_and_what_is_its_own() -> None:
    assert render(target="/x?a=b", Accept="c") == (
        b"GET /base/x?a=b HTTP/1.1\r\nHost: h\r\nUser-Agent: me\r\nImpersonate-Group: a\r\nImpersonate-Group: b\r\n"
        b"Accept: c\r\n\r\n"
    )


def test_a_header_of_the_request_takes_the_place_of_the_shared_one() -> None:
    head = render(user_agent="you", impersonate_group="c")
    assert head.endswith(b"\r\nHost: h\r\nuser-agent: you\r\nimpersonate-group: c\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("PUT", None, 0), ("DELETE", None, None), ("DELETE", b"{}", 2), ("POST", b"", 0)],
)
def test_the_length_of_a_body_is_told_where_one_is_expected(
    method: str, body: bytes | None, length: int | None
) -> None:
    told = b"" if length is None else b"Content-Length: %d\r\n" % length
    assert render(method, body=body).partition(b"Impersonate-Group: b\r\n")[2] == told + b"\r\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "GET /"},
        {"target": "/a b"},
        {"target": "/a\r\nB: c"},
        {"A": "b\r\nC: d"},
        {"A": "b\nc"},
        {"A": "\x00"},
        {"a b": "c"},
        {"a:": "c"},
        {"": "c"},
    ],
)
def test_what_would_break_a_head_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(http1.Error):
        render(**wrong)


def test_many_different_headers_are_not_all_remembered() -> None:
    heads = http1.Heads("", [])
    for number in range(1000):
        assert b"A: %d\r\n" % number in heads.render("GET", "/", {"A": str(number)}, None)
    assert len(heads._rendered) < 300


@pytest.mark.parametrize(
    ("url", "secure", "host", "port", "authority", "path"),
    [
        ("https://h", True, "h", 443, "h", ""),
        ("https://H:443/", True, "h", 443, "h", ""),
        ("http://h:443/a/b/", False, "h", 443, "h:443", "/a/b"),
        ("https://[::1]:6443", True, "::1", 6443, "[::1]:6443", ""),
        ("https://h.example.:6443", True, "h.example", 6443, "h.example:6443", ""),
        ("https://bücher.example", True, "xn--bcher-kva.example", 443, "xn--bcher-kva.example", ""),
    ],
)
def test_an_address_is_taken_apart(
    url: str, secure: bool, host: str, port: int, authority: str, path: str
) -> None:
    assert http1.Origin.parse(url) == http1.Origin(secure, host, port, authority, path)


def test_credentials_in_an_address_become_a_header() -> None:
    origin = http1.Origin.parse("http://jane:p%40ss@h:3128")
    assert (origin.authorization, origin.url) == ("Basic amFuZTpwQHNz", "http://h:3128")


@pytest.mark.parametrize(
    "url",
    ["", "h:6443", "h", "ftp://h", "socks5://u:secret@h", "https://", "http://h:x", "http://u:secret@[::1"],
)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(http1.Error, match="is not the address of an HTTP server") as raised:
        http1.Origin.parse(url)
    assert "secret" not in str(raised.value)
