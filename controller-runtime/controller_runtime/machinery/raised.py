# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Read exceptions that foreign code raises, and convert those that would end a whole task or the process.

Foreign exceptions can be malformed: ``__str__`` raises, causes form a circle, groups are nested hundreds deep. The
functions that read such exceptions do not recurse, and take a bounded number of steps.

Code that awaits a future which another task cancelled gets a ``CancelledError`` although its own task was not
cancelled. A task group drops such an error, so the task would end without a trace. A ``SystemExit``, which command-line
parsers raise, would end the event loop and everything else that runs on it. In the block of :class:`foreign`, both
become ordinary exceptions::

    try:
        with raised.foreign():
            await source.start(queue)
    except Exception as error:
        ...

Code that awaits nothing, and code for each event or request, catches :data:`FAILURES` instead, and calls
:func:`as_error` only if something failed.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import anyio

STRAY_EXITS: Final = (asyncio.CancelledError, SystemExit)
"""Exceptions that would end a whole task or the process if foreign code raised them."""
FAILURES: Final = (Exception, *STRAY_EXITS)
Failure = Exception | asyncio.CancelledError | SystemExit
E = TypeVar("E", bound=BaseException)
_cause: Final[Any] = vars(BaseException)["__cause__"].__get__
_traceback: Final[Any] = vars(BaseException)["__traceback__"].__get__
_exceptions: Final[Any] = vars(BaseExceptionGroup)["exceptions"].__get__
MOST: Final = 10_000
"""Maximum number of parts of an exception that are read."""


class ExpectedError(Exception):
    """An error that its text explains. Logs show it without a traceback, which would show only this program's code."""


class WrapperError(Exception):
    """An error that is as expected as its cause."""


def is_expected(error: BaseException) -> bool:
    """Return True if ``error`` is an :class:`ExpectedError`. Of a group, all members must be."""
    return all(issubclass(type(_unwrapped(leaf)), ExpectedError) for leaf in leaves(error))


def _unwrapped(error: BaseException) -> BaseException | None:
    unwrapped: BaseException | None = error
    for _ in range(MOST):  # a circle of causes has no end
        if unwrapped is None or not issubclass(type(unwrapped), WrapperError):
            return unwrapped
        unwrapped = _cause(unwrapped)
    return None


def name(error: object) -> str:
    """Return the name of the class."""
    return type(error).__name__


def text(error: object) -> str:
    """Return ``str(error)`` in a form that can be encoded as UTF-8. If ``str`` raises, return a text that says so."""
    try:
        shown = str(error)
        return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode()
    except Exception as failure:
        return f"<{name(error)}: its text cannot be read, {name(failure)} was raised>"


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group; none for any other exception."""
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    inside: tuple[BaseException, ...] = _exceptions(error)
    return inside


def parts(error: BaseException, *, causes: bool = True) -> Iterator[BaseException]:
    """Yield ``error`` and, recursively, the members of groups and the causes.

    Each exception is yielded once, and at most :data:`MOST` are yielded in total. If ``causes`` is False, causes are
    left out.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < MOST:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if causes and (cause := _cause(part)) is not None:
            waiting.append(cause)
        waiting += reversed(members(part))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` or, if it is a group, the exceptions at any depth in it that are not groups themselves."""
    return (part for part in parts(error, causes=False) if not members(part))


def first_of(kinds: tuple[type[Exception], ...], error: BaseException) -> BaseException | None:
    """Return the first leaf of ``error`` if every leaf is an instance of one of ``kinds``, otherwise None."""
    failures = list(leaves(error))
    return failures[0] if failures and all(issubclass(type(leaf), kinds) for leaf in failures) else None


def stack(error: BaseException) -> str:
    """Return the traceback of ``error`` and of its parts; the text is empty if no part was ever raised."""
    if all(_traceback(part) is None for part in parts(error)):
        return ""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # e.g. its groups are too deep, or one of its attributes raises
        frames = "".join(traceback.format_tb(_traceback(error)))
        return f"Traceback (most recent call last):\n{frames}{name(error)}: {text(error)}"


class UnreadableError(Exception):
    """Stands for an exception whose attributes cannot be read: its ``__getattribute__`` raises."""


def readable(error: E) -> E | UnreadableError:
    """Return ``error``, or an :class:`UnreadableError` in its place.

    The latter stands for an error for which, or for a part of which, ``isinstance`` raises. A :class:`WrapperError`
    stays, and only its cause is replaced: what the wrapper says about the cause must not be lost.
    """
    if issubclass(type(error), WrapperError) and (cause := _cause(error)) is not None and cause is not error:
        error.__cause__ = _checked(cause)
    return _checked(error)


def _checked(error: E) -> E | UnreadableError:
    try:
        for part in parts(error):
            isinstance(part, UnreadableError)
    except Exception as failure:
        text_ = f"{name(error)}: its attributes cannot be read, {name(failure)} was raised"
        return UnreadableError(text_).with_traceback(_traceback(error))
    return error


def release(error: BaseException) -> None:
    """Drop the frames through which ``error`` and its parts were raised, after ``error`` was handled.

    A program may create an error once and raise it again and again. The error would keep the frames of each time, and
    all objects in them.
    """
    for part in parts(error):
        BaseException.with_traceback(part, None)


class StrayExitError(Exception):
    """Code raised ``SystemExit`` in a process that it does not own."""


class StrayCancellationError(Exception):
    """Code raised ``CancelledError`` although its task was not cancelled."""


def as_error(error: Failure) -> Exception:
    """Return ``error``, or an ordinary exception in place of a ``CancelledError`` or ``SystemExit``.

    Call this function in the ``except`` block that caught ``error``, and only in a task of an anyio task group.

    Raises:
        CancelledError: a cancel scope around the caller is cancelled, so the error is genuine.
    """
    if not issubclass(type(error), asyncio.CancelledError):
        return _converted(error)
    if anyio.current_effective_deadline() == -math.inf:
        raise error
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # code that cancels its own task must not confuse the scopes around it
    return _converted(error)


class foreign:  # noqa: N801 -- reads as the context manager that it is
    """Run foreign code in the block: a ``CancelledError`` or ``SystemExit`` of it becomes an ordinary exception.

    An exception whose attributes cannot be read becomes an :class:`UnreadableError`. The block must run in a task of an
    anyio task group. If the task itself is cancelled, the error stays.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not issubclass(type(error), FAILURES):
            return
        converted = as_error(error)  # type: ignore[arg-type]  # the class was compared
        if converted is not error:
            raise converted from (None if issubclass(type(converted), UnreadableError) else error)


def as_error_of_plain_task(error: Failure) -> Exception:
    """Do the same as :func:`as_error`, for a task that is cancelled by ``Task.cancel`` and not by a cancel scope.

    Raises:
        CancelledError: the task is being cancelled, so the error is genuine.
    """
    task = asyncio.current_task()
    if issubclass(type(error), asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return _converted(error)


def _converted(error: Failure) -> Exception:
    if not issubclass(type(error), STRAY_EXITS):
        return readable(error)  # type: ignore[arg-type]  # the class was compared
    said = text(error)
    detail = f": {said}" if said else ""
    stray: StrayCancellationError | StrayExitError
    if issubclass(type(error), SystemExit):
        stray = StrayExitError(f"SystemExit was raised{detail}")
    else:
        stray = StrayCancellationError(
            f"CancelledError was raised although the task was not cancelled{detail}"
        )
    stray.__cause__ = readable(error)
    return stray
