# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the API server answers: one verdict for all watches of a cache, reported once when it changes."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from controller_runtime import log, metrics, rest

GRACE: Final = 3.0
"""Seconds without a list or watch that succeeds, after one failed, before the server counts as unavailable."""

_log = log.logger_from("cache")


class Outage:
    """Observes every attempt to list or watch.

    A server that cannot be reached at all is unavailable; one that answers with errors is so when no watch succeeds:
    else the errors are those of one kind.
    """

    def __init__(self) -> None:
        self._followers: dict[object, Exception | None] = {}
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None

    @property
    def problem(self) -> str | None:
        """The error, and its duration, while the server is unavailable."""
        if self._error is None:
            return None
        return f"the API server is unavailable for {anyio.current_time() - self._since:.0f} s: {self._error}"

    def join(self, follower: object) -> None:
        """Count ``follower`` among those that watch."""
        self._followers[follower] = None

    def leave(self, follower: object) -> None:
        """Stop counting ``follower``."""
        self._followers.pop(follower, None)

    def failed(self, follower: object, error: Exception) -> None:
        """Note that a try of ``follower`` failed, for a reason other than a refusal."""
        if follower not in self._followers:
            return
        self._followers[follower] = error
        if self._timer is None:
            self._since = anyio.current_time()
            self._timer = asyncio.get_running_loop().call_later(GRACE, self._judge)
        elif anyio.current_time() - self._since >= GRACE:
            self._judge()

    def succeeded(self, follower: object) -> None:
        """Note that the server has accepted a list or watch of ``follower``, or refused it as a server does."""
        if follower in self._followers:
            self._followers[follower] = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._error is not None:
            self._error = None
            metrics.CACHE_UNAVAILABLE.set(0)
            _log.info("API server is available again", after=f"{anyio.current_time() - self._since:.0f} s")

    def _judge(self) -> None:
        errors = [error for error in self._followers.values() if error is not None]
        unreachable = next(filter(_is_away, errors), None)
        if self._error is not None or not (unreachable or (errors and len(errors) == len(self._followers))):
            return
        self._error = unreachable or errors[0]
        metrics.CACHE_UNAVAILABLE.set(1)
        _log.warning("API server is unavailable", error=self._error)


def _is_away(error: Exception) -> bool:
    """Return True if no server answered at all."""
    return isinstance(error, rest.TransportError) and not isinstance(error, rest.AnswerError)
