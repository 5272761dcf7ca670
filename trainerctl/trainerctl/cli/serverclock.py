# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The time of the API server: ages of objects count from its clock, not from that of this machine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from controller_runtime.rest import Request, Response, RoundTripper

_TOLERATED: Final = timedelta(seconds=5)
"""Responses are dated in whole seconds, and a busy server answers late."""


class ServerClock:
    """A round tripper that learns the server's time from its responses."""

    def __init__(
        self, inner: RoundTripper, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._ahead = timedelta()

    async def send(self, request: Request) -> Response:
        """Return the response of the inner round tripper."""
        response = await self._inner.send(request)
        try:
            found = parsedate_to_datetime(response.headers.get("Date", ""))
        except (ValueError, OverflowError):
            return response
        if found.tzinfo is not None:
            self._ahead = found - self._clock()
        return response

    def corrected(self, local: datetime) -> datetime:
        """Return the server's time at a time of this machine."""
        return local + self._ahead if abs(self._ahead) > _TOLERATED else local
