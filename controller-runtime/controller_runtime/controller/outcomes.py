# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of failed reconciles: a panic, an error without a retry, or the delay before the retry."""

from __future__ import annotations

from typing import Final

from controller_runtime import rest
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
from controller_runtime.machinery import GVK, raised
from controller_runtime.machinery.errors import (
    ConflictError,
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


_OF_SERVER: Final = (ServerError, TooManyRequestsError, ConflictError)


def is_terminal(error: BaseException) -> bool:
    """Return True if a retry is pointless: for ``error``, its cause, or every member of a group."""
    waiting = [error]
    for _ in range(raised.MOST):  # a circle of causes has no end
        if not waiting:
            return True
        each = waiting.pop()
        if isinstance(each, TerminalError):
            continue
        if members := raised.members(each):
            waiting += members
        elif (cause := raised.cause(each)) is not None:
            waiting.append(cause)
        else:
            return False
    return False


def is_degraded(error: BaseException) -> bool:
    """Return True if ``error``, its cause or a member reports that a kind is not served."""
    return any(isinstance(each, CacheDegradedError) for each in raised.parts(error))


def asked_wait(error: BaseException) -> float | None:
    """Return the delay that the server requested in ``error``, its causes or its members."""
    waits = (each.retry_after for each in raised.parts(error) if isinstance(each, StatusError))
    return max((wait for wait in waits if wait and wait > 0), default=None)


def is_away(error: BaseException) -> bool:
    """Return True if the server was not reached."""
    return any(isinstance(each, rest.TransportError) for each in raised.parts(error))


def is_of_server(error: BaseException) -> bool:
    """Return True if the server failed, or another client wrote the object at the same time."""
    return any(isinstance(each, _OF_SERVER) for each in raised.parts(error))


def is_panic(error: BaseException) -> bool:
    """Return True if ``error``, or any member of a group, is a programming error."""
    return any(issubclass(type(each), PANICS) for each in raised.leaves(error))


def is_undecodable(error: BaseException, request: Request, kind: GVK | None) -> bool:
    """Return True if the object itself cannot be decoded: a retry is useless before its next write, an event."""
    return any(
        isinstance(each, UndecodableObjectError) and each.key == request and each.gvk == kind
        for each in raised.parts(error)
    )


def only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception in nested groups, or the innermost group with several."""
    found: BaseException = group
    while len(members := raised.members(found)) == 1:
        found = members[0]
    return found
