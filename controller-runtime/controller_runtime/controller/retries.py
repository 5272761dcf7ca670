# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The delay before a failed request is reconciled again, by the cause of its failure.

Failures are counted by cause, so that one cause does not lengthen the delays of another. An obstacle that lasts delays
the retries by many minutes; a 503 at its end must not.

server unreachable   up to 8 s, without a token of the shared limit: its return must be noticed soon
server failed        the limiter's delay, at most 60 s, counted apart until the request succeeds or fails of its own:
                     each event of a changing object is one more failure, and no time passes between them
kind not served      the limiter's delay, at most 30 s: no event reports that the kind is served again
any other            the limiter's delay. A failure before the retry is due, of a reconcile that an event caused, is not
                     counted, and the retry stays where it was: events of an object do not put off its retry
"""

from __future__ import annotations

from typing import Final

import anyio

from controller_runtime import workqueue
from controller_runtime.reconcile import Request

from . import outcomes

AWAY_DELAY: Final = 8.0
"""Maximum retry delay in seconds while the server cannot be reached, so that its return is noticed soon."""
SERVER_DELAY: Final = 60.0
"""Maximum retry delay in seconds after an answer that reports a failure of the server."""
_DEGRADED_DELAY: Final = 30.0


class _ServerFailures(Request):
    """The key of a request under which a limiter counts the failures of the server."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ServerFailures) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return ~tuple.__hash__(self)


class Retries:
    """Counts the failures of requests, and returns their delays."""

    def __init__(self, limiter: workqueue.RateLimiter[Request]) -> None:
        self._limiter = limiter
        self._away = workqueue.ItemExponentialFailureRateLimiter[Request](maximum=AWAY_DELAY)
        self._servers: set[Request] = set()
        """Requests with a count of the server's failures."""
        self._due: dict[Request, float] = {}
        """When requests are retried that failed for another cause, on the loop's clock."""

    def delay(self, request: Request, error: Exception) -> float:
        """Count a failure, and return the seconds until the next attempt, or the delay that the server sent."""
        if (wait := outcomes.asked_wait(error)) is not None:
            self._away.forget(request)
            return wait
        if outcomes.is_away(error):
            return self._away.when(request)
        self._away.forget(request)
        if outcomes.is_of_server(error):
            self._servers.add(request)
            wait = min(self._limiter.when(_ServerFailures(*request)), SERVER_DELAY)
        else:
            self._forget_servers(request)
            wait = self._own_delay(request)
        return min(wait, _DEGRADED_DELAY) if outcomes.is_degraded(error) else wait

    def _own_delay(self, request: Request) -> float:
        """Count a failure of the request's own, unless its retry is still to come."""
        now = anyio.current_time()
        if (left := self._due.get(request, now) - now) > 0:
            return left
        wait = self._limiter.when(request)
        self._due[request] = now + wait
        return wait

    def forget(self, request: Request) -> None:
        """Forget the failures of a request."""
        self._away.forget(request)
        self._limiter.forget(request)
        self._forget_servers(request)
        self._due.pop(request, None)

    def _forget_servers(self, request: Request) -> None:
        if request in self._servers:
            self._servers.discard(request)
            self._limiter.forget(_ServerFailures(*request))
