# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What can go wrong before an API server has said anything.

RestError
├── ConfigError             the connection's settings cannot be used
├── NoKindMatchError        the server does not serve this kind (its CRD is missing, perhaps not for long)
└── TransportError          the server was never reached, or the answer broke off
    └── TransportTimeoutError

An answer that refuses is a ``pkg.apis.machinery.errors.StatusError``; :func:`status_error` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from pkg.apis.machinery import errors
from pkg.apis.machinery.gvk import GVK


class RestError(Exception):
    """The base of this room's errors."""

    needs_no_stack = True


class ConfigError(RestError):
    """The settings of a connection cannot be used; one line that names the file."""


class NoKindMatchError(RestError):
    """The server does not serve ``gvk``."""

    def __init__(self, gvk: GVK) -> None:
        super().__init__(f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"')
        self.gvk = gvk


class TransportError(RestError):
    """No answer came, or not all of it; the request may have taken effect."""

    def __init__(self, message: str, *, host: str) -> None:
        super().__init__(f"{host}: {message}")
        self.host = host


class TransportTimeoutError(TransportError):
    """No answer came in time."""


def status_error(http_code: int, headers: Mapping[str, str], body: bytes) -> errors.StatusError:
    """Return the refusal that an answer of 400 or more carries; its body may be a metav1.Status, text or nothing."""
    try:
        status: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:1024].decode(errors="replace").strip()
        status = {"message": text or f"the server answered {http_code} without a message"}
    return errors.from_status(
        status, http_code=http_code, retry_after=parse_retry_after(headers.get("Retry-After"))
    )


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks to wait (a number, or a date against ``now``), or None."""
    if not value:
        return None
    try:
        return max(0.0, float(int(value)))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment - (now or datetime.now(moment.tzinfo))).total_seconds())
