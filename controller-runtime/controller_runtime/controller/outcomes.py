# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of failed reconciles: a panic, an error without a retry, or a retry after a delay that depends on the cause.

Failures are counted by cause, so that one cause does not lengthen the delays of another. For example, a persistent
error raises the delay to many minutes. If the server later answers with a 503, the retry comes much sooner than that.

server unreachable   5 ms, doubled after each further failure up to 8 s. The limit that all requests share does not
                     apply, because we want to notice soon when the server is back. If more than 100 requests wait for
                     the server, the delays are longer, so that there are about 25 retries a second in all. As soon as
                     one of these retries reaches the server, all of these requests are retried
server failed        the limiter's delay, but at most 60 s: a changing object causes many reconciles in a short time,
                     and each of them counts as a failure. These failures are counted separately. The count starts over
                     when the request succeeds, or fails for one of the reasons below. A response that cannot be
                     decoded, such as a proxy's error page, is such a failure, too
kind not served      the limiter's delay, but at most 30 s: no event reports that the kind is served again
any other            the limiter's delay. Events must not postpone the retry: if an event causes a reconcile before the
                     retry is due, and this reconcile fails, too, the failure is not counted, and the retry keeps its
                     time
"""

from __future__ import annotations

import copy
from typing import Final

import anyio

from controller_runtime import rest, workqueue
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.machinery import GVK, raised
from controller_runtime.machinery.errors import (
    ConflictError,
    NotFoundError,
    ServerError,
    StatusError,
    TooManyRequestsError,
)
from controller_runtime.reconcile import Request, TerminalError

PANICS: Final = (
    AssertionError,
    AttributeError,
    ArithmeticError,
    BufferError,
    LookupError,
    MemoryError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
"""Programming errors: in Go they would be panics, and they are counted as such."""

UNREACHABLE_DELAY: Final = 8.0
"""Maximum retry delay in seconds while the server cannot be reached, so that the server's return is noticed soon."""
UNREACHABLE_RATE: Final = 25.0
"""Retries per second while many requests wait for the server: each retry costs CPU time and a log line."""
_FEW: Final = 100
"""If at most this many requests wait for the server, their delays are not made longer."""
SERVER_DELAY: Final = 60.0
"""Maximum retry delay in seconds after a failure of the server (5xx, 429, an invalid response) or a conflict."""
_DEGRADED_DELAY: Final = 30.0
_SERVER_ERRORS: Final = (ServerError, TooManyRequestsError, ConflictError, rest.AnswerError)


def is_terminal(error: BaseException) -> bool:
    """Return True if a retry is pointless: ``error`` or one of its causes is terminal. A group is terminal if all its
    members are.
    """
    waiting = [error]
    for _ in range(raised.MOST):  # a circle of causes has no end
        if not waiting:
            return True
        part = waiting.pop()
        if isinstance(part, TerminalError):
            continue
        if members := raised.members(part):
            waiting += members
        elif (cause := part.__cause__) is not None:
            waiting.append(cause)
        else:
            return False
    return False


def is_degraded(error: BaseException) -> bool:
    """Return True if ``error``, one of its causes or one of its members reports that a kind is not served."""
    return any(
        isinstance(part, (CacheDegradedError, rest.NoKindMatchError))
        or (isinstance(part, NotFoundError) and not part.names_object)
        for part in raised.parts(error)
    )


def requested_delay(error: BaseException) -> float | None:
    """Return the longest ``retry_after`` in ``error``, its causes and its members; None if there is none."""
    waits = (part.retry_after for part in raised.parts(error) if isinstance(part, StatusError))
    return max((wait for wait in waits if wait and wait > 0), default=None)


def is_unreachable(error: BaseException) -> bool:
    """Return True if the server was not reached. A response that cannot be decoded shows that something answered."""
    return any(
        isinstance(part, rest.TransportError) and not isinstance(part, rest.AnswerError)
        for part in raised.parts(error)
    )


def is_server_failure(error: BaseException) -> bool:
    """Return True if the server failed, or another client wrote the object at the same time."""
    return any(isinstance(part, _SERVER_ERRORS) for part in raised.parts(error))


def is_panic(error: BaseException) -> bool:
    """Return True if ``error``, or any member of a group, is a programming error."""
    return any(isinstance(part, PANICS) for part in raised.leaves(error))


def is_undecodable(error: BaseException, request: Request, kind: GVK | None) -> bool:
    """Return True if the reconciled object itself cannot be decoded.

    A retry cannot help. Only a new write of the object can help, and it causes an event.
    """
    return any(
        isinstance(part, UndecodableObjectError) and part.key == request and part.gvk == kind
        for part in raised.parts(error)
    )


def only_member(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """If a group has only one member, return the member. Do the same if the member is a group."""
    inner: BaseException = group
    while len(members := raised.members(inner)) == 1:
        inner = members[0]
    return inner


class Retries:
    """Counts the failures of requests, and returns their delays."""

    def __init__(self, limiter: workqueue.RateLimiter[Request]) -> None:
        self._limiter = limiter
        try:
            self._server_failures = copy.deepcopy(limiter)
        except (
            Exception
        ):  # a limiter of the program that cannot be copied counts these failures with all others
            self._server_failures = limiter
        self._unreachable = workqueue.ItemExponentialFailureRateLimiter[Request](maximum=UNREACHABLE_DELAY)
        self._waiting: set[Request] = set()
        """The requests that did not reach the server at their last attempt."""
        self._due: dict[Request, float] = {}
        """The time of the retry, on the event loop's clock, for each request that :meth:`_own_delay` has delayed."""

    def delay(self, request: Request, error: Exception) -> float:
        """Count a failure and return the seconds until the retry.

        A delay that the server requested is returned unchanged, and the failure is not counted.
        """
        if (wait := requested_delay(error)) is not None:
            self._unreachable.forget(request)
            return wait
        if is_unreachable(error):
            self._waiting.add(request)
            return max(self._unreachable.when(request), (len(self._waiting) - _FEW) / UNREACHABLE_RATE)
        self._unreachable.forget(request)
        if is_server_failure(error):
            wait = min(self._server_failures.when(request), SERVER_DELAY)
        else:
            self._server_failures.forget(request)
            wait = self._own_delay(request)
        return min(wait, _DEGRADED_DELAY) if is_degraded(error) else wait

    def reached(self, request: Request) -> set[Request]:
        """If ``request`` waited for the server, return the other waiting requests, to retry them at once.

        If few requests wait, return an empty set: their retries are due within seconds.
        """
        if request not in self._waiting:
            return set()
        self._waiting.discard(request)
        if len(self._waiting) < _FEW:
            return set()
        waiting, self._waiting = self._waiting, set()
        return waiting

    def _own_delay(self, request: Request) -> float:
        """Return the seconds until the retry. If an earlier retry is still pending, this failure is not counted."""
        now = anyio.current_time()
        if (left := self._due.get(request, now) - now) > 0:
            return left
        wait = self._limiter.when(request)
        self._due[request] = now + wait
        return wait

    def forget(self, request: Request) -> None:
        """Forget the failures of a request."""
        self._unreachable.forget(request)
        self._limiter.forget(request)
        self._server_failures.forget(request)
        self._due.pop(request, None)
