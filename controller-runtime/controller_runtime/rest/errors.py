# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of requests that got no valid response from an API server.

RestError
├── ConfigError             the connection's settings cannot be used
├── InvalidRequestError     a group, version, namespace or name is not valid in a URL; also a ValueError
├── NoKindMatchError        the server does not serve this kind, e.g. because its CRD is not installed yet
└── TransportError          the server was not reached, or the response was cut off
    ├── ConnectError        nothing was sent: no connection was made, or this replica may not write
    ├── TransportTimeoutError
    │   └── ConnectTimeoutError    also a ConnectError: there was no connection in time
    └── AnswerError         the response is not valid for an API server, e.g. a redirect or the page of a proxy

A response that reports a failure is a ``controller_runtime.machinery.errors.StatusError``, made by
:func:`status_error`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

import msgspec
import pydantic_core

from controller_runtime.machinery import GVK, JSON, raised, rawjson
from controller_runtime.machinery.errors import (
    MAX_RETRY_AFTER,
    StatusError,
    bounded_wait,
    first_problem,
    from_status,
    one_line,
)
from controller_runtime.machinery.printable import cut, printable_line

T = TypeVar("T")
_EXCERPT: Final = 100
_REASON: Final = 256
_LONGEST_PAGE: Final = 8192
"""Maximum number of bytes of an error's body in which its text is searched."""
_LONGEST_TEXT: Final = 512
_PAGE: Final = re.compile(r"\s*<[!?a-z]", re.IGNORECASE)
_NO_TEXT: Final = re.compile(
    r"<(style|script)\b[^<]*(</\1>|$)|<!--.*?(-->|$)|<[^<>]*(>|$|(?=<))", re.IGNORECASE | re.DOTALL
)
"""What is not text in a page: styles, scripts, comments and tags, each perhaps cut off."""
_LONGEST_NUMBER: Final = 20
"""Maximum number of digits of a Retry-After that are parsed; a longer number is a mistake or an attack."""


class RestError(raised.ExpectedError):
    """The base of this package's errors."""


class ConfigError(RestError):
    """The settings of a connection cannot be used. The message is one line."""


class InvalidRequestError(RestError, ValueError):
    """A part of the request is not valid in a URL; nothing was sent."""


class NoKindMatchError(RestError):
    """The server does not serve ``gvk``."""

    def __init__(self, gvk: GVK) -> None:
        super().__init__(f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"')
        self.gvk = gvk


class TransportError(RestError):
    """No response, or only a part of a response, was received; the request may have taken effect."""

    def __init__(self, message: str, *, host: str = "") -> None:
        super().__init__(f"{host}: {message}" if host else message)
        self.host = host


class ConnectError(TransportError):
    """Nothing was sent: no connection to the server was made, or this replica may not write."""


class TransportTimeoutError(TransportError):
    """No response was received in time."""


class ConnectTimeoutError(ConnectError, TransportTimeoutError):
    """Nothing was sent: no connection was made in time, or all connections were in use for too long."""


class AnswerError(TransportError):
    """The response is not a valid response of an API server; the request may have taken effect."""


UNDECODABLE: Final = (
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""The errors of decoders for a body that does not have the expected syntax or structure."""


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """Return ``decode(body)``.

    Raises:
        AnswerError: the body does not have the syntax or structure that ``decode`` expects.
    """
    try:
        return decode(body)
    except UNDECODABLE as error:
        raise undecodable(body, error) from error


def undecodable(body: bytes, error: Exception) -> AnswerError:
    """Return the error for a body that a decoder refused with ``error``."""
    if isinstance(error, pydantic_core.ValidationError):
        reason = ": ".join(first_problem(error)).lstrip(": ")  # without values from the body
    else:
        reason = one_line(error)
    # The error does not quote an object, which may be a Secret.
    shown = "" if body[:1] == b"{" else f"; its {len(body)} bytes begin with {body[:_EXCERPT]!r}"
    return AnswerError(f"the response cannot be decoded: {reason[:_REASON]}{shown}")


def status_error(http_code: int, headers: Mapping[str, str], body: bytes, *, host: str = "") -> StatusError:
    """Return the error for a response with status 400 or more; its body may be a metav1.Status, text or empty.

    The error of a body that is no Status, such as the page of a proxy, contains ``host``, the code and the text. A body
    that exceeds the limits of ``machinery.rawjson`` is not decoded.
    """
    status: JSON = None
    if len(body) <= rawjson.SMALL or rawjson.check(body) is None:
        with suppress(*rawjson.UNREADABLE):
            status = msgspec.json.decode(body)
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = _text(body)
        said = f"the server answered {http_code}" + (f": {text}" if text else " without a message")
        status = {"message": f"{host}: {said}" if host else said}
    return from_status(status, http_code=http_code, retry_after=parse_retry_after(headers.get("Retry-After")))


def _text(body: bytes) -> str:
    """Return the beginning of a text or of a page's text, on one line."""
    text = body[:_LONGEST_PAGE].decode(errors="replace")
    if _PAGE.match(text):
        text = html.unescape(_NO_TEXT.sub(" ", text))
    return cut(printable_line(" ".join(text.split())), _LONGEST_TEXT)


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header requests, or None. A date in the header is compared with ``now``.

    The result is at most :data:`controller_runtime.machinery.errors.MAX_RETRY_AFTER`.
    """
    value = (value or "").strip()
    if not value:
        return None
    if value.removeprefix("-").isdecimal():
        # A longer number exceeds the bound, and Python refuses to parse a number of thousands of digits.
        negative, long = value.startswith("-"), len(value) > _LONGEST_NUMBER
        return bounded_wait(0 if negative else MAX_RETRY_AFTER if long else int(value))
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            # Dates of HTTP are in UTC, also in the form that does not say so.
            moment = moment.replace(tzinfo=UTC)
        return bounded_wait((moment - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
