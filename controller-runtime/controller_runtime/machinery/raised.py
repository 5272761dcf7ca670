# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Exceptions of code that is not ours: their texts, parts and tracebacks, and those that end more than their call.

``__str__`` may raise, causes may form a circle, groups may be nested hundreds deep or contain the same member many
times. Reading an exception never raises, recurses or takes a number of steps without a bound; only KeyboardInterrupt
passes.

Code that awaits a future which another task cancelled gets a ``CancelledError`` although its own task goes on. A
task group drops such an error, and the task ends without a trace. A ``SystemExit``, as parsers of command lines raise
it, would end the event loop and everything else that runs on it. Callers of code that is not their own convert both::

    try:
        await reconciler.reconcile(request)
    except raised.ENDINGS as error:
        raise raised.as_error(error) from error

:data:`FAILURES` are these and all errors, for callers that handle both alike.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

import anyio

ENDINGS: Final = (asyncio.CancelledError, SystemExit)
"""The exceptions that end more than the call that raises them."""
FAILURES: Final = (Exception, *ENDINGS)
Failure = Exception | asyncio.CancelledError | SystemExit
MOST: Final = 10_000
"""Parts of an exception that are looked at."""
_PRINTABLE: Final = 256
"""Parts of an exception up to which it is printed as Python does, which recurses into groups."""
_PRINTED: Final = 16
"""Parts of a larger exception that are printed."""

# The values that Python itself keeps; a class may define properties of the same names.
_name: Final[Any] = vars(type)["__name__"]
_cause: Final[Any] = vars(BaseException)["__cause__"]
_context: Final[Any] = vars(BaseException)["__context__"]
_traceback: Final[Any] = vars(BaseException)["__traceback__"]
_members: Final[Any] = vars(BaseExceptionGroup)["exceptions"]


def name(error: object) -> str:
    """Return the name of the class."""
    found: str = _name.__get__(type(error))
    return found


def text(error: object) -> str:
    """Return ``str(error)``, which can be encoded, or a text that says why there is none."""
    try:
        found = "".join([str(error)])  # a plain string: ``__str__`` may return an instance of a subclass
        return found if found.isascii() else found.encode("utf-8", "backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"<{name(error)}: its text cannot be read, {name(failure)} was raised>"


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group; none for any other exception."""
    found: tuple[BaseException, ...] = ()
    if issubclass(type(error), BaseExceptionGroup):
        found = _members.__get__(error)
    return found


def cause(error: BaseException) -> BaseException | None:
    """Return the exception that ``error`` was raised from."""
    found: BaseException | None = _cause.__get__(error)
    return found


def parts(error: BaseException, *, causes: bool = True) -> Iterator[BaseException]:
    """Yield ``error``, its members and, unless ``causes`` is False, its causes: each once, up to :data:`MOST`."""
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < MOST:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if causes and (before := cause(each)) is not None:
            waiting.append(before)
        waiting += reversed(members(each))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, or the exceptions of a group and of the groups in it."""
    return (each for each in parts(error, causes=False) if not members(each))


def first_of(kinds: tuple[type[Exception], ...], error: BaseException) -> BaseException | None:
    """Return the first of the leaves if each of them is of one of ``kinds``, else None."""
    found = list(leaves(error))
    return found[0] if found and all(issubclass(type(each), kinds) for each in found) else None


def stack(error: BaseException) -> str:
    """Return the traceback of ``error`` and of its parts; nothing if none of them was ever raised."""
    if all(_traceback.__get__(each) is None for each in parts(error)):
        return ""
    try:
        if _is_printable(error):
            return "".join(traceback.format_exception(error)).rstrip()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: S110  # attributes of the exception raise: it is printed without them
        pass
    return "\n\n".join(map(_own_stack, islice(parts(error), _PRINTED)))


def _own_stack(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(_traceback.__get__(error)))
    return f"Traceback (most recent call last):\n{frames}{name(error)}: {text(error)}"


def _is_printable(error: BaseException) -> bool:
    """Return True if Python prints ``error`` in few steps; it counts a member as often as groups contain it."""
    waiting = [error]
    for _ in range(_PRINTABLE):
        if not waiting:
            return True
        each = waiting.pop()
        waiting += members(each)
        before = cause(each)
        if before is None:
            before = _context.__get__(each)
        if before is not None:
            waiting.append(before)
    return not waiting


class StrayExitError(Exception):
    """Code raised ``SystemExit`` although the process is not its own."""


class StrayCancellationError(Exception):
    """Code raised ``CancelledError`` although its task was not cancelled."""


def as_error(error: Failure) -> Exception:
    """Return ``error``, or an ordinary error in its place; for tasks of a task group, in the handler that caught it.

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


def as_error_of_plain_task(error: Failure) -> Exception:
    """Do the same as :func:`as_error` for tasks that ``Task.cancel`` cancels and no scope does."""
    task = asyncio.current_task()
    if issubclass(type(error), asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return _converted(error)


def _converted(error: Failure) -> Exception:
    if not issubclass(type(error), ENDINGS):  # by the class: ``isinstance`` asks attributes of the error
        return cast("Exception", error)
    said = text(error)
    detail = f": {said}" if said else ""
    stray: StrayCancellationError | StrayExitError
    if isinstance(error, SystemExit):
        stray = StrayExitError(f"SystemExit was raised{detail}")
    else:
        stray = StrayCancellationError(
            f"CancelledError was raised although the task was not cancelled{detail}"
        )
    stray.__cause__ = error
    return stray
