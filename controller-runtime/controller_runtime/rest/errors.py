# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong before an API server has said anything.

RestError
├── ConfigError             the connection's settings cannot be used
├── InvalidRequestError     no URL can be made of a group, version, namespace or name; a ValueError, too
├── NoKindMatchError        the server does not serve this kind (its CRD is missing, perhaps not for long)
└── TransportError          the server was never reached, or the answer broke off
    ├── TransportTimeoutError
    └── AnswerError         what answered does not speak the Kubernetes API: a redirect, a proxy's page

An answer that refuses is a ``controller_runtime.apis.machinery.errors.StatusError``; :func:`status_error` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import msgspec
import pydantic

from controller_runtime.apis.machinery import errors
from controller_runtime.apis.machinery.gvk import GVK

T = TypeVar("T")
_EXCERPT: Final = 100
_REASON: Final = 256
_LONGEST_NUMBER: Final = 20
"""Digits of a Retry-After that are read as a number; more of them are a mistake or an attack."""


class RestError(Exception):
    """The base of this room's errors."""

    needs_no_stack = True


class ConfigError(RestError):
    """The settings of a connection cannot be used; one line that names the file."""


class InvalidRequestError(RestError, ValueError):
    """What a request would name cannot stand in a URL; nothing was sent."""


class NoKindMatchError(RestError):
    """The server does not serve ``gvk``."""

    def __init__(self, gvk: GVK) -> None:
        super().__init__(f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"')
        self.gvk = gvk


class TransportError(RestError):
    """No answer came, or not all of it; the request may have taken effect."""

    def __init__(self, message: str, *, host: str = "") -> None:
        super().__init__(f"{host}: {message}" if host else message)
        self.host = host


class TransportTimeoutError(TransportError):
    """No answer came in time."""


class AnswerError(TransportError):
    """An answer came that an API server does not give; the request may have taken effect."""


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """Return ``decode(body)``.

    Raises:
        AnswerError: the body has another syntax or shape than ``decode`` expects.
    """
    try:
        return decode(body)
    except (
        msgspec.MsgspecError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        reason = _reason(error)[:_REASON]
        # An object is not shown: it may be a Secret.
        shown = "" if body[:1] == b"{" else f"; its {len(body)} bytes begin with {body[:_EXCERPT]!r}"
        raise AnswerError(f"the answer cannot be decoded: {reason}{shown}") from error


def _reason(error: Exception) -> str:
    """Return what is wrong with a body on one line, and no value in it."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
    return errors.one_line(error)


def status_error(http_code: int, headers: Mapping[str, str], body: bytes) -> errors.StatusError:
    """Return the refusal that an answer of 400 or more carries; its body may be a metav1.Status, text or nothing."""
    try:
        status: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:1024].decode(errors="replace").strip()
        status = {"message": text or f"the server answered {http_code} without a message"}
    return errors.from_status(
        status, http_code=http_code, retry_after=parse_retry_after(headers.get("Retry-After"))
    )


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks to wait (a number, or a date against ``now``), or None.

    They are bounded by :data:`controller_runtime.apis.machinery.errors.MAX_RETRY_AFTER`, whatever the server says.
    """
    value = (value or "").strip()
    if not value:
        return None
    if value.removeprefix("-").isdecimal():
        # Longer numbers are as good as the bound, and Python refuses to read those of thousands of digits.
        negative, long = value.startswith("-"), len(value) > _LONGEST_NUMBER
        return errors.bounded_wait(0 if negative else errors.MAX_RETRY_AFTER if long else int(value))
    try:
        moment = parsedate_to_datetime(value)
        return errors.bounded_wait((moment - (now or datetime.now(moment.tzinfo))).total_seconds())
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
