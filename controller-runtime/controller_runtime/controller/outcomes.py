# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of failed reconciles: a panic, an error without a retry, or the delay before the retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller_runtime import rest
from controller_runtime.apis.machinery.errors import (
    ConflictError,
    ServerError,
    StatusError,
    TooManyRequestsError,
)
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.cache import CacheDegradedError, UndecodableObjectError
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
    if isinstance(error, TerminalError):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_terminal, error.exceptions))
    return error.__cause__ is not None and is_terminal(error.__cause__)


def is_degraded(error: BaseException) -> bool:
    """Return True if ``error``, its cause or a member reports that a kind is not served."""
    return any(isinstance(each, CacheDegradedError) for each in all_of(error))


def asked_wait(error: BaseException) -> float | None:
    """Return the delay that the server requested in ``error``, its causes or its members."""
    waits = [each.retry_after for each in all_of(error) if isinstance(each, StatusError)]
    return max(filter(None, waits), default=None)


def is_away(error: BaseException) -> bool:
    """Return True if the server was not reached."""
    return any(isinstance(each, rest.TransportError) for each in all_of(error))


def is_of_server(error: BaseException) -> bool:
    """Return True if the server failed, or another client wrote the object at the same time."""
    return any(isinstance(each, _OF_SERVER) for each in all_of(error))


def all_of(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, its causes and its members."""
    yield error
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*members, error.__cause__):
        if each is not None:
            yield from all_of(each)


def is_panic(error: BaseException) -> bool:
    """Return True if ``error``, or any member of a group, is a programming error."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_panic, error.exceptions))
    return isinstance(error, PANICS)


def is_undecodable(error: BaseException, request: Request, kind: GVK | None) -> bool:
    """Return True if the object itself cannot be decoded: a retry is useless before its next write, an event."""
    return any(
        isinstance(each, UndecodableObjectError) and each.key == request and each.gvk == kind
        for each in all_of(error)
    )


def only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only exception in nested groups, or the innermost group with several."""
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return group
