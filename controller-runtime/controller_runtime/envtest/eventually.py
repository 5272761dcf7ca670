# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Wait for asynchronous results of a control plane."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

import anyio

T = TypeVar("T")


class EventuallyError(AssertionError):
    """A wait failed. The message contains the awaited condition, the timeout and the last observed value."""


@overload
async def eventually(
    check: Callable[[], Awaitable[T | None]], *, timeout: float = ..., interval: float = ..., reason: str
) -> T: ...
@overload
async def eventually(
    check: Callable[[], T | None], *, timeout: float = ..., interval: float = ..., reason: str
) -> T: ...
async def eventually(
    check: Callable[[], object], *, timeout: float = 10, interval: float = 0.05, reason: str
) -> object:
    """Return the first truthy result of ``check``, which is called every ``interval`` seconds.

    ``check`` may be a coroutine function. An ``AssertionError``, a ``LookupError`` or an error whose ``code`` is
    404 (a missing object) means "not yet"; any other error ends the wait.

    Raises:
        EventuallyError: ``check`` returned nothing truthy within ``timeout`` seconds.
    """
    seen = "nothing, the first check did not end"
    cause: Exception | None = None
    with anyio.move_on_after(timeout):
        while True:
            try:
                result = check()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return result
                seen, cause = repr(result), None
            except (AssertionError, LookupError) as error:
                cause = error
            except Exception as error:
                if getattr(error, "code", None) != 404:
                    raise
                cause = error
            await anyio.sleep(interval)
    if cause is not None:
        seen = f"{type(cause).__name__}: {cause}"
    raise EventuallyError(f"not within {timeout:g} s: {reason}; last seen: {seen[:500]}") from cause


async def consistently(
    check: Callable[[], object], *, duration: float = 1, interval: float = 0.05, reason: str
) -> None:
    """Return after ``duration`` seconds if every result of ``check`` was truthy.

    Raises:
        EventuallyError: a result was not truthy.
    """
    deadline = anyio.current_time() + duration
    while (left := deadline - anyio.current_time()) > 0:
        seen = check()
        if inspect.isawaitable(seen):
            seen = await seen
        if not seen:
            raise EventuallyError(f"not always for {duration:g} s: {reason}; seen: {seen!r}")
        await anyio.sleep(min(interval, left))
